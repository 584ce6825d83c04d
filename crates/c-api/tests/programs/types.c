/* Compares all types of an object file with libctf's; prints how many. */
#include <ctf-api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unspool_types.h>

#define CHECK(condition) \
	((condition) ? (void)0 : (printf("type %lu, line %d\n", (unsigned long)id, __LINE__), exit(1)))

struct compared {
	ctf_dict_t *dict;
	ctf_id_t id;
	size_t count;
};

static int member(const unspool_type_member *member, void *data)
{
	struct compared *compared = data;
	ctf_id_t id = compared->id;
	ctf_membinfo_t info;

	compared->count++;
	if (member->name[0] == '\0')
		return 0;
	CHECK(ctf_member_info(compared->dict, id, member->name, &info) == 0);
	CHECK(info.ctm_offset + 0 <= member->bit_offset);
	return 0;
}

int main(int count, char **names)
{
	int error;
	unspool_types *ours = count > 1 ? unspool_types_open(names[1]) : NULL;
	ctf_archive_t *archive = ctf_open(names[1], NULL, &error);
	ctf_dict_t *dict = ctf_dict_open(archive, NULL, &error);
	unspool_type_id last, id;

	if (ours == NULL || dict == NULL)
		return printf("%s\n", unspool_types_error()), 1;
	last = unspool_type_last(ours);
	for (id = 1; id <= last; id++) {
		unspool_type type = { .struct_size = sizeof type };
		struct compared compared = { dict, (ctf_id_t)id, 0 };
		const char *name = ctf_type_name_raw(dict, id);
		int kind = ctf_type_kind(dict, id);
		ssize_t size = ctf_type_size(dict, id);

		CHECK(unspool_type_get(ours, id, &type) == 0);
		if (kind < 0) {
			/* One of those that replace arrays that gcc stored in reverse. */
			CHECK(type.kind == UNSPOOL_TYPE_ARRAY);
			continue;
		}
		if (kind != CTF_K_FUNCTION)
			CHECK(strcmp(type.name, name) == 0);
		if (size > 0 && kind != CTF_K_FUNCTION)
			CHECK((uint64_t)size == type.size);
		if (kind == CTF_K_POINTER)
			CHECK(type.kind == UNSPOOL_TYPE_POINTER && type.target == (unspool_type_id)ctf_type_reference(dict, id));
		if (kind == CTF_K_STRUCT || kind == CTF_K_UNION) {
			CHECK(type.kind == (kind == CTF_K_STRUCT ? UNSPOOL_TYPE_STRUCT : UNSPOOL_TYPE_UNION));
			CHECK((int)type.count == ctf_member_count(dict, id));
			CHECK(unspool_type_members(ours, id, member, &compared) == 0);
			CHECK(compared.count == type.count);
		}
	}
	printf("%u\n", last);
	ctf_dict_close(dict);
	ctf_close(archive);
	unspool_types_close(ours);
	return 0;
}
