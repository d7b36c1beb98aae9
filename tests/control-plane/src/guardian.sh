# Starts the servers of one control plane, and ends them when its standard input ends.
#
# Only one process holds the other end of that pipe. However that process ends, the kernel closes the pipe, the read
# below fails, and the servers and the directory are removed. As their parent, this script can never kill a foreign
# process with a reused process id, and no server ever runs unguarded.
set -u
dir=$1
# Signals for the foreground process group (Ctrl-C, a closed terminal) are not for us.
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
