/* mapped OUT [INPUT CHILD]...: links one.ctf, two.ctf and three.ctf by libctf, with these inputs
   in these children. */
#include <ctf-api.h>
#include <stdio.h>
#include <stdlib.h>

static void done(int ok, ctf_dict_t *dict, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "%s: %s\n", what, dict ? ctf_errmsg(ctf_errno(dict)) : "failed");
    exit(1);
}

int main(int argc, char **argv)
{
    static const char *const inputs[] = { "one.ctf", "two.ctf", "three.ctf" };
    int error = 0;
    ctf_dict_t *out = ctf_create(&error);
    done(out != NULL, NULL, "ctf_create");
    for (int i = 0; i < 3; i++) {
        ctf_archive_t *input = ctf_open(inputs[i], NULL, &error);
        done(input != NULL, NULL, inputs[i]);
        done(ctf_link_add_ctf(out, input, inputs[i]) == 0, out, "ctf_link_add_ctf");
    }
    for (int i = 2; i + 1 < argc; i += 2)
        done(ctf_link_add_cu_mapping(out, argv[i], argv[i + 1]) == 0, out, "ctf_link_add_cu_mapping");
    done(ctf_link(out, CTF_LINK_SHARE_UNCONFLICTED) == 0, out, "ctf_link");
    size_t size;
    unsigned char *bytes = ctf_link_write(out, &size, 4096);
    done(bytes != NULL, out, "ctf_link_write");
    FILE *file = fopen(argv[1], "w");
    return !file || fwrite(bytes, 1, size, file) != size || fclose(file);
}
