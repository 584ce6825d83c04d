#!/bin/sh
# sh repro.sh NAME: whether a fault of README.md is still there. Exit status: 0 still wrong, 1 mended,
# 2 not to be seen here. `sh repro.sh` tries all.
set -u
unspool=${UNSPOOL:-unspool}
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
for name in glibc_addmul glibc_libmvec openssl_gather openssl_x25519 gcc_realigned nasm_directives perf_marks; do
	run $name
done
exit 0
