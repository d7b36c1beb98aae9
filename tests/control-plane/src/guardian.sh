# Starts the servers of one control plane, and ends them when its standard input ends.
#
# The other end of that pipe is held by one process only. When that process ends, in whatever way, the kernel closes
# it, the read below fails, and the servers and the folder go. Being their parent, this script can never hit a stranger
# by a reused process id, and no moment exists in which a server runs that nobody looks after.
set -u
dir=$1
# Signals meant for the group in the foreground (Ctrl-C, a closed terminal) are not for us.
trap '' HUP INT QUIT PIPE TERM

mkdir -m 700 "$dir" 2>&1 || exit 1
echo ready

etcd=
apiserver=
while read -r verb name; do
    case $verb in
    run)
        sh "$dir/$name.run" </dev/null >>"$dir/$name.log" 2>&1 &
        eval "$name=$!"
        echo "$!"
        ;;
    kill)
        eval "pid=\$$name"
        kill -9 "$pid"
        wait "$pid"
        eval "$name="
        echo gone
        ;;
    esac
done

for pid in $etcd $apiserver; do
    kill -9 "$pid"
done
wait
rm -rf -- "$dir"
