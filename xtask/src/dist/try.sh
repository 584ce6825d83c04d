# The script of `cargo xtask dist --try` in a fresh root of Debian, with the packages in /tmp/try.
mount -t sysfs sysfs /sys
cd /tmp/try
export HOME=/tmp/try TMPDIR=/tmp/try
libraries=/usr/lib/x86_64-linux-gnu
export libraries

# Its output is shown if it fails, or lacks the expected text.
expect() {
    text=$1
    shift
    "$@" > output 2>&1 || { echo "$*: status $?"; cat output; exit 1; }
    [ -z "$text" ] || grep -q -- "$text" output || { echo "$*: no \"$text\" in"; cat output; exit 1; }
}

if command -v lintian > /dev/null; then
    expect '' lintian --allow-root --fail-on error,warning ./*.deb
fi
expect '' dpkg --install ./*.deb

expect '^unspool [0-9]' unspool --version
expect ' 0 differences' unspool verify /usr/bin
expect 'unspool report' unspool record -o profile unspool verify /usr/bin
expect '^\(100\|9[0-9].*\) % of .* stacks are complete' unspool report profile
expect '' unspool doctor
[ -s /usr/share/man/man1/unspool-record.1.gz ]
expect '' bash -n /usr/share/bash-completion/completions/unspool

expect 'signal SIGSEGV' sh -c "LD_PRELOAD=$libraries/unspool/libunspool-crash.so sh -c 'kill -SEGV \$\$' || true"
cc -rdynamic -o backtrace backtrace.c $(pkg-config --cflags --libs unspool) -ldl
expect ' main$' ./backtrace
cc -rdynamic -o static backtrace.c -l:libunspool.a -pthread -ldl
expect 'outermost frame' ./static
cc -g -o variables variables.c $(pkg-config --cflags --libs unspool unspool-variables) -ldl
expect 'local price: int = 45' ./variables

cat > walk.c << 'END'
#include <stdio.h>
int unw_backtrace(void **, int);
int main(void) { void *frames[64]; printf("%d frames\n", unw_backtrace(frames, 64)); return 0; }
END
cc -o walk walk.c $libraries/unspool/libunwind.so.8
expect '^[3-9] frames' env LD_LIBRARY_PATH=$libraries/unspool ./walk

expect '' dpkg --purge unspool libunspool-dev libunspool0

for archive in ./*.tar.gz; do tar -xf "$archive"; done
expect '^unspool [0-9]' ./unspool-*/bin/unspool --version
PKG_CONFIG_PATH=$(echo "$PWD"/libunspool-*/pkgconfig)
export PKG_CONFIG_PATH
cc -rdynamic -o backtrace backtrace.c $(pkg-config --cflags --libs unspool) -ldl
expect ' main$' env LD_LIBRARY_PATH="$(dirname "$PKG_CONFIG_PATH")" ./backtrace
