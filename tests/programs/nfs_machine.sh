#!/bin/busybox sh
# The first process of the NFS test's machine (see nfs_image.py): a real NFS 4.2 server on an ext4 disk, networks for three
# real clients with host names of their own, so that the server sees three hosts; then the scenario, then power off.
export PATH=/host:/bin
/bin/busybox --install -s /bin
chmod 755 /
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t cgroup2 groups /sys/fs/cgroup
mount -t devtmpfs dev /dev 2>/dev/null # the kernel may have done it
mount -t tmpfs -o mode=1777 tmp /tmp
mount -t tmpfs run /run
for module in /modules/*; do insmod "$module"; done
mkdir -p /var/lib/nfs/v4recovery /etc/exports.d
touch /var/lib/nfs/etab /var/lib/nfs/rmtab /etc/exports
mount -t ext4 /dev/vda /srv
rmdir /srv/lost+found
chmod 1777 /srv
# By their paths, here and below: the shell prefers busybox's own, which know less.
/host/ip link set lo up
mount -t nfsd nfsd /proc/fs/nfsd
exportfs -o rw,fsid=0,root_squash,sync,no_subtree_check 10.0.0.0/8:/srv
rpc.mountd --no-nfs-version 3
number=0
for client in one two three; do
    number=$((number + 1))
    touch /run/$client.net /run/$client.uts
    /host/unshare --net=/run/$client.net --uts=/run/$client.uts hostname $client
    /host/ip link add to-$client type veth peer name eth0 netns /run/$client.net
    /host/ip address add 10.0.$number.1/24 dev to-$client
    /host/ip link set to-$client up
    /host/nsenter --net=/run/$client.net /host/ip address add 10.0.$number.2/24 dev eth0
    /host/nsenter --net=/run/$client.net /host/ip link set eth0 up
done
PYTHONPATH=/ondol PYTHONDONTWRITEBYTECODE=1 /bin/python3 -S /ondol/nfs_scenario.py /dev/ttyS1
poweroff -n -f
