package sdk

import (
	"context"
	"crypto/sha256"
	"sync"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"cloudprovider.ccm/sdk/internal/checks"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// lanes let one mutation at a time work on each natural key. A caller that lost its connection repeats its request
// while the first one still runs: the two must not interleave in the cloud.
type lanes struct {
	mu      sync.Mutex
	running map[wish]*underway
	busy    map[checks.Subject]bool
}

// underway is a running mutation, shared by all callers that wait for it.
type underway struct {
	ended chan struct{}
	out   outcome
}

// wish identifies a request as it arrived: the method may change the message while it runs.
type wish [sha256.Size]byte

func wishOf(request proto.Message) (wish, error) {
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(withoutNodes(request))
	return sha256.Sum256(text), err
}

// withoutNodes returns the request with its backends as their digest alone, if they have one: there may be thousands.
func withoutNodes(request proto.Message) proto.Message {
	backed, is := request.(interface{ GetBackends() *pb.BackendSet })
	if !is || backed.GetBackends().GetDigest() == "" {
		return request
	}
	whole := request.ProtoReflect()
	bare := whole.New()
	whole.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		bare.Set(field, value)
		return true
	})
	set := &pb.BackendSet{Digest: backed.GetBackends().GetDigest()}
	bare.Set(whole.Descriptor().Fields().ByName("backends"), protoreflect.ValueOfMessage(set.ProtoReflect()))
	return bare.Interface()
}

// wait returns a channel with its outcome.
func (u *underway) wait() <-chan outcome {
	out := make(chan outcome, 1)
	go func() {
		<-u.ended
		out <- u.out
	}()
	return out
}

// run joins the identical running mutation, or starts one on keys that are admitted and free. Its keys stay busy until
// it ends or is abandoned.
func (l *lanes) run(request proto.Message, may checks.May, begin func(left any, refused proto.Message) (context.Context, <-chan outcome, error)) (*underway, error) {
	asked, err := wishOf(request)
	if err != nil {
		return nil, fault.Internal(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if equal, running := l.running[asked]; running {
		return equal, nil
	}
	var mine []checks.Subject
	left, refused, err := checks.Admit(request, func(subject checks.Subject, revision uint64) error {
		if err := may(subject, revision); err != nil {
			return err
		}
		if l.busy[subject] {
			return fault.ConcurrentOperation(subject.Name)
		}
		mine = append(mine, subject)
		return nil
	})
	if err != nil {
		return nil, err
	}
	work, ended, err := begin(left, refused)
	if err != nil {
		return nil, err
	}
	begun := &underway{ended: make(chan struct{})}
	if l.busy == nil {
		l.running, l.busy = map[wish]*underway{}, map[checks.Subject]bool{}
	}
	l.running[asked] = begun
	for _, subject := range mine {
		l.busy[subject] = true
	}
	free := sync.OnceFunc(func() { l.free(asked, mine) })
	context.AfterFunc(work, free)
	go func() {
		begun.out = <-ended
		free()
		close(begun.ended)
	}()
	return begun, nil
}

func (l *lanes) free(asked wish, mine []checks.Subject) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.running, asked)
	for _, subject := range mine {
		delete(l.busy, subject)
	}
}
