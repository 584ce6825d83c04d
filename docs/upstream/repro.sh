#!/bin/sh
# sh repro.sh NAME: whether a fault of README.md is still there. Exit status: 0 still wrong, 1 mended,
# 2 not to be seen here. `sh repro.sh` tries all.
set -u
unspool=${UNSPOOL:-unspool}
if ! command -v "$unspool" >/dev/null; then
	echo "repro.sh: there is no $unspool: add its folder to PATH, or set UNSPOOL to its absolute path" >&2
	exit 2
fi
folder=$(mktemp -d) || exit 2
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 2

# Whether a backtrace of gdb has a frame that is not code.
gdb_is_lost() { # PROGRAM COMMANDS…
	program=$1
	shift
	gdb -batch -nx -iex 'set debuginfod enabled off' "$@" -ex bt "$program" >said 2>&1
	grep -q '^#1 ' said || return 2
	grep -q ' in ?? ()' said
}

# Whether `unspool check` refutes rows of a function.
refutes() { # FILE FUNCTION
	[ -e "$1" ] || return 2
	"$unspool" check "$1" >said 2>&1
	case $? in
	0) return 1 ;;
	1) grep refuted said | grep -q " in $2+" ;;
	*) return 2 ;;
	esac
}

glibc_addmul() {
	printf '%s\n' '#include <stdio.h>' \
		'int main(void) { char s[6000]; return snprintf(s, sizeof s, "%.40Lf", 1e300L) == 0; }' >m.c
	cc m.c -o m || return 2
	gdb_is_lost ./m -ex 'set breakpoint pending on' -ex 'break __mpn_addmul_1' -ex run -ex 'stepi 2'
}

glibc_libmvec() {
	refutes /lib/x86_64-linux-gnu/libmvec.so.1 _ZGVcN4vl8l8_sincos
}

openssl_gather() {
	refutes /usr/lib/x86_64-linux-gnu/libcrypto.a bn_gather5
}

openssl_x25519() {
	refutes /usr/lib/x86_64-linux-gnu/libcrypto.a x25519_fe51_sqr
}

gcc_realigned() {
	cat >r.c <<-'C'
		typedef int v8 __attribute__((vector_size(32)));
		void use(v8 *, int *);
		int f(int n) { v8 aligned; int variable[n]; use(&aligned, variable); return variable[0]; }
	C
	cc -O2 -mavx2 -c r.c -o r.o 2>said || return 2
	"$unspool" check --strict r.o >said 2>&1
	case $? in
	0) return 1 ;;
	1) grep -q CFI008 said ;;
	*) return 2 ;;
	esac
}

llvm_epilogues() {
	for library in /usr/lib/x86_64-linux-gnu/libLLVM-1[5-9].so.1 /usr/lib/x86_64-linux-gnu/libLLVM.so.[12]*; do
		[ -e "$library" ] || continue
		"$unspool" check "$library" >said 2>&1
		[ $? -le 1 ] || return 2
		grep -q 'refuted CFI001' said && return 0
		found=1
	done
	[ -n "${found:-}" ] && return 1
	return 2
}

libgcrypt_helpers() {
	refutes /usr/lib/x86_64-linux-gnu/libgcrypt.a __blowfish_enc_blk4
}

ocaml_collections() {
	compiler=$(command -v ocamlopt.opt) || return 2
	"$unspool" check "$compiler" >said 2>&1
	[ $? -le 1 ] || return 2
	grep -q 'refuted CFI001' said
}

nasm_directives() {
	printf '%s\n' 'global f:function' 'f:' '.cfi_startproc' 'ret' >n.asm
	command -v nasm >/dev/null || return 2
	nasm -felf64 n.asm -o n.o 2>said && readelf -S n.o | grep -q eh_frame && return 1
	return 0
}

# An innermost frame of the process whose caller is the kernel's.
perf_marks() {
	command -v perf >/dev/null || return 2
	address=$(awk '$3 == "commit_creds" { print $1 }' /proc/kallsyms)
	case $address in '' | *0000000000000000) return 2 ;; esac
	cat >k.c <<-C
		static long frames[2][2];
		int main(void) {
		  frames[0][0] = (long)frames[1];
		  frames[0][1] = -128;
		  frames[1][1] = 0x$address;
		  __asm__ volatile("push %%rbp\n mov %0, %%rbp\n mov \$300000000, %%rcx\n"
		                   "1: dec %%rcx\n jnz 1b\n pop %%rbp" : : "r"(frames[0]) : "rcx", "memory");
		}
	C
	cc -O1 k.c -o k || return 2
	perf record -q -g -e cpu-clock -o k.data ./k >said 2>&1 || return 2
	perf script -i k.data >said 2>&1 || return 2
	grep -A1 ' main+' said | grep -q commit_creds
}

# Whether the assembler writes SFrame, and the objects of two files with it.
sframe_objects() {
	as --help | grep -q gsframe || return 2
	cat >g.c <<-C
		#include <stdio.h>
		int main(void) { int (*volatile p)(const char *) = puts; return p("a") + puts("b"); }
	C
	echo 'int other(void); int other(void) { return 1; }' >h.c
	for file in g h; do
		cc -O1 -fPIE -Wa,--gsframe -c $file.c -o $file.o 2>said || return 2
	done
}

# Wrong rows (GNU ld 2.44 to 2.47), or none (2.40).
binutils_plt_got() {
	sframe_objects || return 2
	cc -pie g.o h.o -o g 2>said && readelf -SW g | grep -q '\.plt\.got' || return 2
	"$unspool" check g >said 2>&1
	grep -q 'CFI01[67].* in puts@plt+' said
}

# The version is the third byte of the section.
binutils_versions() {
	sframe_objects || return 2
	objcopy --dump-section .sframe=section h.o || return 2
	printf '\004' | dd of=section bs=1 seek=2 conv=notrunc 2>said
	objcopy --update-section .sframe=section h.o
	cc -pie g.o h.o -o g 2>said || return 1
	"$unspool" show --from sframe g 2>said | grep -q '^# other$' && return 1
	return 0
}

# An enumeration of one byte in two objects has four in what ld links of them.
binutils_enums() {
	for file in a b; do
		echo "enum __attribute__((packed)) small { ONE } $file;" >$file.c
		cc -gctf -c $file.c -o $file.o 2>said || return 2
	done
	cc -shared a.o b.o -o ab.so 2>said || return 2
	"$unspool" ctf type 'enum small' a.o | grep -q 'size 1 ' || return 2
	"$unspool" ctf type 'enum small' ab.so | grep -q 'size 4 '
}

run() {
	"$1"
	status=$?
	case $status in
	0) echo "$1: still wrong" ;;
	1) echo "$1: mended" ;;
	*) echo "$1: not to be seen here" ;;
	esac
	return $status
}

if [ $# -gt 0 ]; then
	run "$1"
	exit $?
fi
for name in glibc_addmul glibc_libmvec openssl_gather openssl_x25519 gcc_realigned llvm_epilogues libgcrypt_helpers \
	ocaml_collections nasm_directives perf_marks binutils_plt_got binutils_versions binutils_enums; do
	run $name
done
exit 0
