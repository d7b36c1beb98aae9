package sdk

import (
	"bytes"
	"slices"
	"sync"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

const (
	// backendsField is the number of EnsureLoadBalancerRequest.backends.
	backendsField = 4
	// keptBackendSets is how many sets are kept: those of the kinds of Services that there are, while they are ensured.
	keptBackendSets = 4
)

// codec decodes a set of backends once: when many Services are ensured, each request brings all nodes along again.
type codec struct {
	encoding.CodecV2
	mu   sync.Mutex
	sets []decodedSet
}

// decodedSet is a set and the bytes that it was decoded from.
type decodedSet struct {
	encoded []byte
	set     *pb.BackendSet
}

func newCodec() *codec { return &codec{CodecV2: encoding.GetCodecV2("proto")} }

func (c *codec) Unmarshal(data mem.BufferSlice, message any) error {
	request, is := message.(*pb.EnsureLoadBalancerRequest)
	if !is {
		return c.CodecV2.Unmarshal(data, message)
	}
	text := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer text.Free()
	rest, encoded := withoutBackends(text.ReadOnlyData())
	if err := proto.Unmarshal(rest, request); err != nil || encoded == nil {
		return err
	}
	set, err := c.decoded(encoded)
	request.Backends = set
	return err
}

// decoded answers the set of these bytes, decoded now or before.
func (c *codec) decoded(encoded []byte) (*pb.BackendSet, error) {
	c.mu.Lock()
	at := slices.IndexFunc(c.sets, func(one decodedSet) bool { return bytes.Equal(one.encoded, encoded) })
	if at >= 0 {
		defer c.mu.Unlock()
		return c.sets[at].set, nil
	}
	c.mu.Unlock()
	set := &pb.BackendSet{}
	if err := proto.Unmarshal(encoded, set); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sets = append(c.sets, decodedSet{bytes.Clone(encoded), set})
	if len(c.sets) > keptBackendSets {
		c.sets = slices.Delete(c.sets, 0, 1)
	}
	return set, nil
}

// withoutBackends cuts the set out of an encoded request; nothing is cut where it does not stand there once.
func withoutBackends(text []byte) (rest, encoded []byte) {
	from, to := 0, 0
	for at := 0; at < len(text); {
		number, kind, head := protowire.ConsumeTag(text[at:])
		if head < 0 {
			return text, nil // Broken; the decoder says how.
		}
		size := protowire.ConsumeFieldValue(number, kind, text[at+head:])
		if size < 0 {
			return text, nil
		}
		if number == backendsField {
			value, _ := protowire.ConsumeBytes(text[at+head:])
			if kind != protowire.BytesType || encoded != nil || value == nil {
				return text, nil
			}
			encoded, from, to = value, at, at+head+size
		}
		at += head + size
	}
	if encoded == nil {
		return text, nil
	}
	return slices.Concat(text[:from], text[to:]), encoded
}
