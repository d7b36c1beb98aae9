# One machine, in a network namespace that exists: its own name and files, containerd, kube-proxy and a kubelet.
#
# NAME: its own; PROGRAMS: folder of kubelet, kube-proxy and the CNI plugins; HOME_DIR: its files and logs; GROUP: the cgroup
# of its containers; POD_CIDR; ARCHIVES: images that are there from the start; KUBELET_CONFIG: more lines of its kubelet's
# configuration; KUBELET: more flags.
set -eu
hostname "$NAME"
for folder in /run /var/lib /var/log; do mount -t tmpfs -o mode=755 tmpfs "$folder"; done
sysctl -qw net.ipv4.ip_forward=1

mkdir -p "$HOME_DIR/cni"
# Without SNAT: who calls sees the address of the pod.
cat >"$HOME_DIR/cni/pods.conflist" <<CNI
{"cniVersion": "1.0.0", "name": "pods", "plugins": [{
  "type": "bridge", "bridge": "pods0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "$POD_CIDR"}]], "routes": [{"dst": "0.0.0.0/0"}]}
}]}
CNI
cat >"$HOME_DIR/containerd.toml" <<TOML
version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  # The oom_score_adj of a container may be below ours, which is not allowed everywhere.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$PROGRAMS"
    conf_dir = "$HOME_DIR/cni"
TOML
containerd --config "$HOME_DIR/containerd.toml" >"$HOME_DIR/containerd.log" 2>&1 &
for _ in $(seq 200); do ctr version >/dev/null 2>&1 && break; sleep 0.05; done
for archive in $ARCHIVES; do ctr --namespace k8s.io images import "$archive"; done

# The kernel's limits of connections are those of the whole machine: left alone.
"$PROGRAMS/kube-proxy" --kubeconfig="$HOME_DIR/proxy.kubeconfig" --hostname-override="$NAME" --cluster-cidr=10.244.0.0/16 \
    --conntrack-max-per-core=0 --conntrack-tcp-timeout-established=0s --conntrack-tcp-timeout-close-wait=0s \
    >"$HOME_DIR/kube-proxy.log" 2>&1 &

cat >"$HOME_DIR/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {x509: {clientCAFile: "$HOME_DIR/ca.crt"}, webhook: {enabled: true}}
authorization: {mode: Webhook}
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
# Limits of whole pods and of the system would need groups of its own: those of containers hold.
cgroupsPerQOS: false
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
localStorageCapacityIsolation: false
nodeLeaseDurationSeconds: 8
nodeStatusUpdateFrequency: 2s
clusterDNS: [10.0.0.10]
clusterDomain: cluster.local
resolvConf: ""
$KUBELET_CONFIG
YAML
# shellcheck disable=SC2086
exec "$PROGRAMS/kubelet" --config="$HOME_DIR/kubelet.yaml" --kubeconfig="$HOME_DIR/kubelet.kubeconfig" \
    --cloud-provider=external --root-dir=/var/lib/kubelet $KUBELET
