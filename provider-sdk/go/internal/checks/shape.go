package checks

import (
	"fmt"
	"math"
	"strings"
	"sync"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Shape checks a request against the shapes of its fields in the contract: nil, or the first violation. In limits none is left
// to its default.
func Shape(request any, limits *pb.Limits) error {
	message, is := request.(proto.Message)
	if !is {
		return nil
	}
	at := message.ProtoReflect()
	switch bad := planOf(at.Descriptor()).check(at, limits.ProtoReflect()); {
	case bad == nil:
		return nil
	case bad.items > 0:
		return fault.BatchTooLarge(bad.items, bad.max)
	default:
		return fault.InvalidArgumentShape(bad.path, bad.why)
	}
}

// Fit clamps the page size, so that the methods need not.
func Fit(request any, limits *pb.Limits) {
	if _, is := request.(paged); !is {
		return
	}
	message := request.(proto.Message).ProtoReflect()
	size := message.Descriptor().Fields().ByName("page_size")
	asked, limit := message.Get(size).Int(), int64(min(limits.GetMaxPageSize(), math.MaxInt32))
	if asked == 0 || asked > limit {
		message.Set(size, protoreflect.ValueOfInt32(int32(limit)))
	}
}

// misshapen is what is wrong with a request: a field, whose path grows on the way back, or too many items.
type misshapen struct {
	path, why string
	items     int
	max       uint32
}

// within puts the name of a field, or of an entry of a list, before the path.
func (m *misshapen) within(name string) *misshapen {
	if m != nil && m.items == 0 {
		m.path = name + "." + m.path
	}
	return m
}

// plan is what there is to check in a message.
type plan []check

// check is what there is to check of a field.
type check struct {
	field                          protoreflect.FieldDescriptor
	name                           string
	shape                          *pb.FieldShape
	inside                         plan
	limit, requiredWith, emptyWith protoreflect.FieldDescriptor
	unique                         [][]protoreflect.FieldDescriptor
}

// plans are made once for each kind of message.
var plans sync.Map

func planOf(message protoreflect.MessageDescriptor) plan {
	if known, is := plans.Load(message.FullName()); is {
		return known.(plan)
	}
	var out plan
	limits := (*pb.Limits)(nil).ProtoReflect().Descriptor().Fields()
	for i := range message.Fields().Len() {
		field := message.Fields().Get(i)
		shape, _ := proto.GetExtension(field.Options(), pb.E_Shape).(*pb.FieldShape)
		one := check{field: field, name: string(field.Name()), shape: shape}
		if inside := field.Message(); inside != nil && inside.ParentFile().Package() == message.ParentFile().Package() && !field.IsMap() && !shape.GetUnchecked() {
			one.inside = planOf(inside)
		}
		one.limit = limits.ByName(protoreflect.Name(shape.GetLimit()))
		one.requiredWith = message.Fields().ByName(protoreflect.Name(shape.GetRequiredWith()))
		one.emptyWith = message.Fields().ByName(protoreflect.Name(shape.GetEmptyWith()))
		for _, path := range shape.GetUnique() {
			var way []protoreflect.FieldDescriptor
			at := field.Message()
			for name := range strings.SplitSeq(path, ".") {
				way = append(way, at.Fields().ByName(protoreflect.Name(name)))
				at = way[len(way)-1].Message()
			}
			one.unique = append(one.unique, way)
		}
		if shape != nil || len(one.inside) > 0 {
			out = append(out, one)
		}
	}
	plans.Store(message.FullName(), out)
	return out
}

func (p plan) check(message, limits protoreflect.Message) *misshapen {
	for _, one := range p {
		if bad := one.check(message, limits); bad != nil {
			return bad
		}
	}
	return nil
}

func (c *check) check(message, limits protoreflect.Message) *misshapen {
	required := c.shape.GetRequired() || (c.requiredWith != nil && message.Get(c.requiredWith).Bool())
	switch value := message.Get(c.field); {
	case c.field.IsList():
		return c.list(message, value.List(), limits)
	case required && !message.Has(c.field):
		return &misshapen{path: c.name, why: "is missing"}
	case c.field.Kind() == protoreflect.StringKind && c.shape.GetMaxBytes() > 0 && len(value.String()) > int(c.shape.GetMaxBytes()):
		return &misshapen{path: c.name, why: fmt.Sprintf("has more than %d bytes", c.shape.GetMaxBytes())}
	case c.shape.GetNotNegative() && value.Int() < 0:
		return &misshapen{path: c.name, why: "is negative"}
	case len(c.inside) > 0 && message.Has(c.field):
		return c.inside.check(value.Message(), limits).within(c.name)
	}
	return nil
}

func (c *check) list(message protoreflect.Message, list protoreflect.List, limits protoreflect.Message) *misshapen {
	if c.emptyWith != nil && list.Len() > 0 && message.Get(c.emptyWith).Bool() {
		return &misshapen{path: c.name, why: fmt.Sprintf("is not empty although %s is set", c.emptyWith.Name())}
	}
	if c.shape.GetRequired() && list.Len() == 0 {
		return &misshapen{path: c.name, why: "is empty"}
	}
	if c.limit != nil {
		if most := limits.Get(c.limit).Uint(); uint64(list.Len()) > most {
			return &misshapen{items: list.Len(), max: uint32(most)}
		}
	}
	if len(c.inside) > 0 {
		for i := range list.Len() {
			if bad := c.inside.check(list.Get(i).Message(), limits); bad != nil {
				return bad.within(fmt.Sprintf("%s[%d]", c.name, i))
			}
		}
	}
	for n, way := range c.unique {
		seen := make(map[string]bool, list.Len())
		for i := range list.Len() {
			at := list.Get(i)
			for _, step := range way {
				at = at.Message().Get(step)
			}
			if seen[at.String()] {
				return &misshapen{path: fmt.Sprintf("%s[%d].%s", c.name, i, c.shape.GetUnique()[n]), why: "is a duplicate"}
			}
			seen[at.String()] = true
		}
	}
	return nil
}
