package sdk

import (
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/protobuf/proto"
)

const (
	// claimSize is the size of the time, and of the byte that says where the cloud's token is.
	claimSize = 8 + 1
	// longestWithin is the longest cloud's token that fits into a token of 1 KiB.
	longestWithin = 1024/4*3 - sha256.Size - claimSize
	isWithin      = 0
	isKept        = 1
	// mostKept is the number of oversized cloud tokens kept in memory; the oldest are dropped first and count as expired.
	mostKept = 4096
	// defaultTokenValidity is the contract's.
	defaultTokenValidity = 5 * time.Minute
)

// PageRequest is any request for a page.
type PageRequest interface {
	proto.Message
	GetCluster() *pb.ClusterRef
	GetPageSize() int32
	GetPageToken() string
}

// Pager cuts lists into pages, or passes on a cloud's own pages; a provider needs only one. Its tokens have at most
// 1 KiB and stay valid for the promised time. They are signed, together with list, cluster and time, with a secret of this
// process, so that a token that was never issued is told from one that has expired.
type Pager struct {
	validity time.Duration
	now      func() time.Time
	start    time.Time
	key      []byte
	mu       sync.Mutex
	last     uint64
	kept     map[uint64]keptToken
}

// keptToken is a cloud's token that is too long for a token of the contract.
type keptToken struct {
	issued time.Duration
	text   string
}

// NewPager returns a pager. The validity is the advertised Intervals.page_token_validity, zero for the contract's
// default; the cloud must accept its own tokens for as long.
func NewPager(validity time.Duration) *Pager {
	p := &Pager{validity: cmp.Or(validity, defaultTokenValidity), now: time.Now, key: []byte(rand.Text()), kept: map[uint64]keptToken{}}
	p.start = p.now()
	return p
}

// Open returns the cloud's own token from which the request continues; empty for the first page. Call it before
// querying the cloud. Errors: fault.PageTokenExpired, fault.InvalidToken.
func (p *Pager) Open(request PageRequest) (string, error) {
	if request.GetPageToken() == "" {
		return "", nil
	}
	token, err := base64.RawURLEncoding.Strict().DecodeString(request.GetPageToken())
	if err != nil || len(token) < sha256.Size+claimSize || !hmac.Equal(token[:sha256.Size], p.sign(request, token[sha256.Size:])) {
		return "", fault.InvalidToken()
	}
	claim := token[sha256.Size:]
	if p.now().Sub(p.start)-time.Duration(binary.BigEndian.Uint64(claim)) > p.validity {
		return "", fault.PageTokenExpired()
	}
	meaning := claim[claimSize:]
	if claim[claimSize-1] == isWithin {
		return string(meaning), nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	found, there := p.kept[binary.BigEndian.Uint64(meaning)]
	if !there {
		return "", fault.PageTokenExpired()
	}
	return found.text, nil
}

// Seal returns the token of the next page, which stands for the cloud's own; empty after the last page.
func (p *Pager) Seal(request PageRequest, cloudToken string) string {
	if cloudToken == "" {
		return ""
	}
	now := p.now().Sub(p.start)
	claim := binary.BigEndian.AppendUint64(nil, uint64(now))
	if len(cloudToken) <= longestWithin {
		claim = append(append(claim, isWithin), cloudToken...)
	} else {
		claim = binary.BigEndian.AppendUint64(append(claim, isKept), p.keep(cloudToken, now))
	}
	return base64.RawURLEncoding.EncodeToString(append(p.sign(request, claim), claim...))
}

func (p *Pager) keep(text string, now time.Duration) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	oldest := p.last
	for number, one := range p.kept {
		if now-one.issued > p.validity {
			delete(p.kept, number)
		} else {
			oldest = min(oldest, number)
		}
	}
	if len(p.kept) >= mostKept {
		delete(p.kept, oldest)
	}
	p.last++
	p.kept[p.last] = keptToken{now, text}
	return p.last
}

func (p *Pager) sign(request PageRequest, claim []byte) []byte {
	mac := hmac.New(sha256.New, p.key)
	mac.Write([]byte(string(request.ProtoReflect().Descriptor().Name()) + " " + request.GetCluster().GetUid() + "\x00"))
	mac.Write(claim)
	return mac.Sum(nil)
}

// Page returns the requested page of items, and the token of the next page, which is empty after the last. Keys are unique,
// and constant while an item exists. Pages are in the order of keys, so that items that come or go in between hide no
// others. Errors: fault.PageTokenExpired, fault.InvalidToken.
func Page[T any](pager *Pager, request PageRequest, items []T, key func(T) string) (page []T, next string, err error) {
	after, err := pager.Open(request)
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
	return page, pager.Seal(request, key(page[size-1])), nil
}
