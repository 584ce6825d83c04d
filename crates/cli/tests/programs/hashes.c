/* Counts words in a table. `mix` is inlined into two functions, which have branches and loops. */
#include <stdio.h>
#include <string.h>

#define SLOTS 4096

struct word {
	char text[12];
	unsigned long count;
};

static struct word words[SLOTS];

static inline unsigned long mix(unsigned long hash, char letter)
{
	hash = (hash ^ (unsigned char)letter) * 0x100000001b3;
	return hash ^ hash >> 29;
}

__attribute__((noinline)) unsigned long hash_of(const char *text)
{
	unsigned long hash = 0;
	for (; *text; text++)
		hash = mix(hash, *text);
	return hash;
}

__attribute__((noinline)) struct word *find(const char *text)
{
	unsigned long at = mix(hash_of(text), text[0]) % SLOTS;
	while (words[at].count && strcmp(words[at].text, text))
		at = (at + 1) % SLOTS;
	return &words[at];
}

int main(void)
{
	unsigned long seed = 1;
	char text[12];
	for (long n = 0; n < 3000000; n++) {
		seed = seed * 6364136223846793005 + 1442695040888963407;
		snprintf(text, sizeof text, "w%lu", (seed >> 33) % 3000);
		struct word *word = find(text);
		strcpy(word->text, text);
		word->count++;
	}
	printf("%lu\n", find("w7")->count);
	return 0;
}
