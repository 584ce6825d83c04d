#!/bin/busybox sh
# The machine's first process: mounts the root, the kernel's file systems and the job, and goes on there.
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
for module in /modules/*; do insmod "$module"; done

options=trans=virtio,version=9p2000.L,msize=1048576
mount -t 9p -o $options,cache=loose,ro root /root
mount -t proc proc /root/proc
mount -t sysfs sys /root/sys
mount -t devtmpfs dev /root/dev
for folder in tmp run root var/tmp; do mount -t tmpfs tmpfs /root/$folder; done
mkdir /root/dev/pts /root/dev/shm /root/run/job
mount -t devpts devpts /root/dev/pts
mount -t tmpfs tmpfs /root/dev/shm
mount -t tracefs tracefs /root/sys/kernel/tracing
mount -t bpf bpf /root/sys/fs/bpf
mount -t cgroup2 cgroup2 /root/sys/fs/cgroup
mount -t 9p -o $options job /root/run/job
# No line ends that a serial line would want.
stty -F /dev/console -opost
echo 1 > /root/proc/sys/kernel/sysrq
exec switch_root /root /bin/sh /run/job/init
