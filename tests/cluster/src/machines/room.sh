# Runs a program in a room: mount, network and process namespaces of its own. Whatever it starts ends with it, whatever
# it mounts is unmounted. The room ends when the program does, or when standard input does, however whoever holds the
# other end of that pipe has ended.
set -u
trap '' HUP INT QUIT PIPE TERM
# What runs in the background has no standard input of ours.
exec 3<&0

# The machines' runtimes put their containers into these groups, which are of the whole machine: with version 2 of cgroups into
# one, with version 1 into one of each controller.
groups="/sys/fs/cgroup/$1 /sys/fs/cgroup/*/$1"
shift

unshare --mount --net --pid --uts --ipc --fork --kill-child --mount-proc --propagation private sh -eu -c '
    mount -t tmpfs -o mode=755 tmpfs /run
    mount -t tmpfs -o mode=755 tmpfs /mnt
    mkdir -p /run/netns
    ip link set lo up
    exec "$@"
' room "$@" 3<&- &
room=$!
(while read -r _ <&3; do :; done; kill -9 "$room") &
end=$!
wait "$room"
status=$?
kill -9 "$end" 2>/dev/null
# A group is busy until the last of its processes is gone.
for _ in $(seq 100); do
    # shellcheck disable=SC2086
    find $groups -depth -type d -exec rmdir {} \; 2>/dev/null
    # shellcheck disable=SC2086
    [ -n "$(find $groups -maxdepth 0 2>/dev/null)" ] || break
    sleep 0.1
done
exit "$status"
