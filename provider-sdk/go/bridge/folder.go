package bridge

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/protobuf/encoding/protojson"
)

// WithStateDir keeps in a directory what was applied to load balancers, so that it survives restarts of the sidecar and
// of the host. Its user promises that nobody else changes this cluster's load balancers: either all replicas share the
// directory, or there is only one replica.
func WithStateDir(path string) Option {
	return func(b *bridge) { b.stateDir = path }
}

// WithCompleteState declares that the directory of WithStateDir holds every load balancer that this provider has ever
// created behind the bridge: lists are then complete, and other load balancers with its names belong to a former
// controller.
func WithCompleteState() Option {
	return func(b *bridge) { b.completeState = true }
}

const (
	entrySuffix = ".json"
	markSuffix  = ".mark"
)

// folder is a ledger with one file per load balancer, in one directory per cluster. It reads the files every time, since
// another replica may write them.
type folder struct {
	path     string
	complete bool
	// names caches the clusters' names.
	names *memory
}

// newFolder creates the directory and verifies that it is writable.
func newFolder(path string, complete bool) (*folder, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("--state-dir: %w", err)
	}
	probe, err := os.CreateTemp(path, "probe-*")
	if err != nil {
		return nil, fmt.Errorf("--state-dir: %w; use a directory that the sidecar can write", err)
	}
	probe.Close()
	return &folder{path, complete, newMemory()}, os.Remove(probe.Name())
}

// entry is the content of a file.
type entry struct {
	Service  json.RawMessage `json:"service"`
	Balancer json.RawMessage `json:"balancer"`
}

func (f *folder) now() moment { return 0 }

// of returns a cluster's directory. Uids are untrusted, so it does not use them as file names.
func (f *folder) of(cluster string) string { return filepath.Join(f.path, hashed(cluster)) }

func (f *folder) file(key balancerKey) string {
	return filepath.Join(f.of(key.cluster), hashed(key.service)+entrySuffix)
}

func hashed(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

func (f *folder) recall(key balancerKey) *applied { return read(f.file(key)) }

// read returns the content of a file; nil if it does not exist or is unreadable: then the state is unknown.
func read(path string) *applied {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	out := &applied{&pb.Service{}, &pb.LoadBalancer{}}
	var held entry
	err = errors.Join(err, json.Unmarshal(text, &held))
	if err == nil {
		lenient := protojson.UnmarshalOptions{DiscardUnknown: true}
		err = errors.Join(lenient.Unmarshal(held.Service, out.service), lenient.Unmarshal(held.Balancer, out.balancer))
	}
	if err != nil {
		slog.Warn("cannot read what was applied to a balancer, so its state is unknown", "file", path, "error", err)
		return nil
	}
	return out
}

func (f *folder) doubt(key balancerKey) error {
	known := f.recall(key)
	switch {
	case known == nil:
		return removed(f.file(key)) // An unreadable one may be readable again later.
	case known.balancer.GetAppliedDigest() == "":
		return nil
	}
	return f.write(key, known.doubted())
}

func removed(file string) error {
	if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (f *folder) remember(key balancerKey, _ moment, what *applied) {
	if err := f.write(key, what); err != nil {
		slog.Warn("cannot store what was applied to a balancer, so its state will be unknown", "service", key.service, "error", err)
	}
}

func (f *folder) write(key balancerKey, what *applied) error {
	service, bad := protojson.Marshal(what.service)
	balancer, worse := protojson.Marshal(what.balancer)
	if err := errors.Join(bad, worse); err != nil {
		return err
	}
	return f.store(key, entrySuffix, entry{service, balancer})
}

// store writes a file atomically.
func (f *folder) store(key balancerKey, suffix string, content any) error {
	text, err := json.Marshal(content)
	if err = errors.Join(err, os.MkdirAll(f.of(key.cluster), 0o700)); err != nil {
		return err
	}
	out, err := os.CreateTemp(f.of(key.cluster), "new-*")
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	if err = errors.Join(err, out.Sync(), out.Close()); err == nil {
		err = os.Rename(out.Name(), filepath.Join(f.of(key.cluster), hashed(key.service)+suffix))
	}
	if err != nil {
		return errors.Join(err, os.Remove(out.Name()))
	}
	return nil
}

func (f *folder) leads(*pb.Fencing) {}

func (f *folder) durable() bool { return true }

func (f *folder) markFile(key balancerKey) string {
	return filepath.Join(f.of(key.cluster), hashed(key.service)+markSuffix)
}

// mark returns the mark of a load balancer. Those older than marks are ours, and so are those with an unreadable mark.
func (f *folder) mark(key balancerKey) mark {
	out, there := readMark(f.markFile(key))
	return mark{out.Claimed || (!there && f.recall(key) != nil), out.Annotations, out.Finalizers, out.Conditions}
}

func readMark(path string) (out mark, there bool) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return out, false
	}
	if err = errors.Join(err, json.Unmarshal(text, &out)); err != nil {
		slog.Warn("cannot read what the provider wrote to a Service", "file", path, "error", err)
		return mark{Claimed: true}, true
	}
	return out, true
}

// each visits every load balancer of every cluster.
func (f *folder) each(visit func(*applied, mark)) {
	files, _ := filepath.Glob(filepath.Join(f.path, "*", "*"+entrySuffix))
	for _, file := range files {
		if one := read(file); one != nil {
			mark, _ := readMark(strings.TrimSuffix(file, entrySuffix) + markSuffix)
			visit(one, mark)
		}
	}
}

func (f *folder) keep(key balancerKey, now mark) error { return f.store(key, markSuffix, now) }

func (f *folder) erase(key balancerKey) error {
	return cmp.Or(removed(f.markFile(key)), removed(f.file(key)))
}

func (f *folder) all(cluster string) (all []*applied) {
	files, err := os.ReadDir(f.of(cluster))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		slog.Warn("cannot list what was applied to balancers", "error", err)
	}
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), entrySuffix) {
			continue
		}
		if one := read(filepath.Join(f.of(cluster), file.Name())); one != nil {
			all = append(all, one)
		}
	}
	return byService(all)
}

func (f *folder) elsewhere(key balancerKey) bool {
	// A hash is the only foreign part of the pattern.
	files, _ := filepath.Glob(filepath.Join(f.path, "*", hashed(key.service)+entrySuffix))
	return slices.ContainsFunc(files, func(file string) bool { return file != f.file(key) })
}

func (f *folder) clusterName(uid, given string) string {
	if name := f.names.clusterName(uid, ""); name != "" {
		return name
	}
	file := filepath.Join(f.of(uid), "name")
	if text, err := os.ReadFile(file); err == nil {
		return f.names.clusterName(uid, string(text))
	}
	name := f.names.clusterName(uid, given)
	if name != "" {
		if err := errors.Join(os.MkdirAll(f.of(uid), 0o700), os.WriteFile(file, []byte(name), 0o600)); err != nil {
			slog.Warn("cannot store the name of a cluster", "cluster", uid, "error", err)
		}
	}
	return name
}

func (f *folder) gap() string {
	if f.complete {
		return ""
	}
	return "before the state folder"
}
