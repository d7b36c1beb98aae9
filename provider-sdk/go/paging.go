package sdk

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/protobuf/proto"
)

// longestPageToken is the contract's limit.
const longestPageToken = 8 << 10

// PageRequest is any request for a page.
type PageRequest interface {
	proto.Message
	GetCluster() *pb.ClusterRef
	GetPageSize() int32
	GetPageToken() string
}

// OpenPageToken returns the cloud's own token from which the request continues; empty for the first page. Call it before
// querying the cloud. Error: fault.InvalidToken; return it, too, if the cloud takes its own token no more.
func OpenPageToken(request PageRequest) (string, error) {
	if request.GetPageToken() == "" {
		return "", nil
	}
	token, err := base64.RawURLEncoding.Strict().DecodeString(request.GetPageToken())
	position, isOurs := strings.CutPrefix(string(token), pageOwner(request))
	if err != nil || !isOurs || !utf8.ValidString(position) {
		return "", fault.InvalidToken()
	}
	return position, nil
}

// SealPageToken returns the token of the next page, which stands for the cloud's own; empty after the last page. It names its
// list and its cluster, so that no other list takes it. Error: the cloud's token is too long for one of the contract.
func SealPageToken(request PageRequest, cloudToken string) (string, error) {
	if cloudToken == "" {
		return "", nil
	}
	token := base64.RawURLEncoding.EncodeToString([]byte(pageOwner(request) + cloudToken))
	if len(token) > longestPageToken {
		return "", fmt.Errorf("the cloud's page token has %d bytes", len(cloudToken))
	}
	return token, nil
}

// pageOwner is what a token begins with: its list and its cluster.
func pageOwner(request PageRequest) string {
	return string(request.ProtoReflect().Descriptor().Name()) + " " + request.GetCluster().GetUid() + "\x00"
}

// Page returns the requested page of items, and the token of the next page, which is empty after the last. Keys are unique,
// and constant while an item exists. Pages are in the order of keys, so that items that come or go in between hide no
// others. Error: fault.InvalidToken.
func Page[T any](request PageRequest, items []T, key func(T) string) (page []T, next string, err error) {
	after, err := OpenPageToken(request)
	if err != nil {
		return nil, "", err
	}
	for _, item := range items {
		if request.GetPageToken() == "" || key(item) > after {
			page = append(page, item)
		}
	}
	slices.SortFunc(page, func(a, b T) int { return cmp.Compare(key(a), key(b)) })
	size := int(cmp.Or(max(request.GetPageSize(), 0), defaultPageSize))
	if len(page) <= size {
		return page, "", nil
	}
	page = page[:size]
	next, err = SealPageToken(request, key(page[size-1]))
	return page, next, err
}
