package checks

import (
	"fmt"
	"math"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
)

// Longest texts in bytes: keys, provider IDs, tokens and volume ids; uids; names; digests; CIDRs.
const (
	maxLong      = 1 << 10
	maxPageToken = 8 << 10
	maxUID       = 64
	maxName      = 253
	maxDigest    = 128
	maxCIDR      = 64
)

// first returns the first error.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// text checks a required text of limited length.
func text(field, value string, max int) error {
	if value == "" {
		return fault.InvalidArgumentShape(field, "is missing")
	}
	return short(field, value, max)
}

// short checks an optional text of limited length.
func short(field, value string, max int) error {
	if len(value) > max {
		return fault.InvalidArgumentShape(field, fmt.Sprintf("has more than %d bytes", max))
	}
	return nil
}

func present(field string, there bool) error {
	if !there {
		return fault.InvalidArgumentShape(field, "is missing")
	}
	return nil
}

func cluster(cluster *pb.ClusterRef) error {
	return first(
		present("cluster", cluster != nil),
		text("cluster.uid", cluster.GetUid(), maxUID),
		short("cluster.name", cluster.GetName(), maxName),
	)
}

func page(request paged) error {
	if request.GetPageSize() < 0 {
		return fault.InvalidArgumentShape("page_size", "is negative")
	}
	return short("page_token", request.GetPageToken(), maxPageToken)
}

// pageSize returns the page size that a method receives: the limit if the request has none or a larger one.
func pageSize(asked int32, max uint32) int32 {
	limit := int32(min(max, math.MaxInt32))
	if asked == 0 {
		return limit
	}
	return min(asked, limit)
}

// batch checks that there is at least one item and at most as many as advertised.
func batch(field string, items int, max uint32) error {
	if items == 0 {
		return fault.InvalidArgumentShape(field, "is empty")
	}
	if uint64(items) > uint64(max) {
		return fault.BatchTooLarge(items, max)
	}
	return nil
}

// keys holds the keys of a batch.
type keys map[string]bool

// add refuses a key that is missing, too long or a duplicate.
func (k keys) add(field, key string, max int) error {
	if err := text(field, key, max); err != nil {
		return err
	}
	if k[key] {
		return fault.InvalidArgumentShape(field, "is a duplicate")
	}
	k[key] = true
	return nil
}

func node(field string, node *pb.NodeRef) error {
	return first(
		present(field, node != nil),
		text(field+".name", node.GetName(), maxName),
		short(field+".provider_id", node.GetProviderId(), maxLong),
	)
}

func service(field string, service *pb.ServiceRef) error {
	return first(
		present(field, service != nil),
		text(field+".uid", service.GetUid(), maxUID),
		text(field+".name", service.GetName(), maxName),
		text(field+".namespace", service.GetNamespace(), maxName),
	)
}
