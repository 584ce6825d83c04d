# The script of `cargo xtask debian`: runs a command in the folder /clone of a root of Debian. Arguments: the root, the user,
# Rust's toolchain, cargo's folder, the command.
root=$1 user=$2 toolchain=$3 cargo=$4
shift 4

mount --make-rprivate /
# Not chroot: with it, `unshare` is not permitted.
mount --bind "$root" "$root"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
mount -t proc proc "$root/proc"
for folder in "$toolchain:toolchain" "$cargo/registry:registry"; do
    mkdir -p "$root/${folder##*:}"
    mount --bind "${folder%:*}" "$root/${folder##*:}"
    mount -o remount,bind,ro "$root/${folder##*:}"
done
# The network is the machine's, with the authorities that it trusts.
for file in /etc/resolv.conf /etc/ssl/certs/ca-certificates.crt; do
    cp "$file" "$root$file"
done
mkdir -p "$root/.old"
cd "$root"
pivot_root . .old
umount -l /.old
rmdir /.old

echo "127.0.0.1 localhost $(cat /proc/sys/kernel/hostname)" > /etc/hosts
home=/root
if [ "$user" != root ]; then
    home=/home/$user
    id "$user" > /dev/null 2>&1 || useradd --create-home "$user"
    echo "$user ALL=(ALL) NOPASSWD: ALL" > "/etc/sudoers.d/$user"
    chown -R "$user:" /clone
fi
# What cargo fetched; it unpacks that itself, since some files may be read by their owner only.
mkdir -p "$home/.cargo/registry"
cp -r /registry/cache /registry/index "$home/.cargo/registry"
chown -R "$user:" "$home"
cd /clone
exec setpriv --reuid "$user" --regid "$user" --init-groups env -i HOME="$home" USER="$user" LANG=C.UTF-8 \
    PATH=/toolchain/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    CARGO_NET_OFFLINE=true CARGO_INCREMENTAL=0 \
    "$@"
