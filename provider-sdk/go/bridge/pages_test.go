package bridge

import (
	"errors"
	"slices"
	"testing"
	"time"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
)

var whose = &pb.ClusterRef{Uid: "cluster"}

func TestAWalkIsOneLook(t *testing.T) {
	now, looks := time.Unix(0, 0), 0
	pages := pages[int]{now: func() time.Time { return now }}
	look := func() ([]int, error) {
		looks++
		return []int{1, 2, 3, 4, 5}, nil
	}
	var seen []int
	token := ""
	for range 3 {
		items, next, err := pages.page(whose, token, 2, look)
		if err != nil {
			t.Fatal(err)
		}
		seen, token = append(seen, items...), next
	}
	if !slices.Equal(seen, []int{1, 2, 3, 4, 5}) || token != "" || looks != 1 {
		t.Errorf("saw %v, then %q, in %d looks", seen, token, looks)
	}
	if items, next, err := pages.page(whose, "", 5, look); err != nil || len(items) != 5 || next != "" {
		t.Error(items, next, err)
	}
}

// [R:page-token-refused]
func TestGarbageIsToldAndListsAreForgotten(t *testing.T) {
	now := time.Unix(0, 0)
	pages := pages[int]{now: func() time.Time { return now }}
	look := func() ([]int, error) { return []int{1, 2}, nil }
	_, token, err := pages.page(whose, "", 1, look)
	if err != nil {
		t.Fatal(err)
	}
	reason := func(token string) pb.ErrorReason {
		_, _, err := pages.page(whose, token, 1, look)
		return fault.ReasonOf(err)
	}
	for _, garbage := range []string{"x", "x.1", token + "7", token[:len(token)-1] + "-1", "."} {
		if reason(garbage) != pb.ErrorReason_ERROR_REASON_INVALID_TOKEN {
			t.Errorf("%q was taken", garbage)
		}
	}
	if _, _, err := pages.page(&pb.ClusterRef{Uid: "other"}, token, 1, look); fault.ReasonOf(err) != pb.ErrorReason_ERROR_REASON_INVALID_TOKEN {
		t.Errorf("another cluster's token was taken: %v", err)
	}
	now = now.Add(walkLasts)
	if reason(token) != 0 {
		t.Error("a list is forgotten too early")
	}
	now = now.Add(time.Hour)
	for range 3 {
		if _, _, err := pages.page(whose, "", 1, look); err != nil {
			t.Fatal(err)
		}
	}
	if len(pages.walks) != 3 {
		t.Errorf("%d walks are kept", len(pages.walks))
	}
	if reason(token) != pb.ErrorReason_ERROR_REASON_INVALID_TOKEN {
		t.Error("a list that is forgotten goes on")
	}
	if _, _, err := pages.page(whose, "", 1, func() ([]int, error) { return nil, errors.New("x") }); err == nil {
		t.Error("a look that failed became an empty list")
	}
}

// Callers that start lists and never finish them cost bounded memory; the newest lists continue.
func TestWalksAreBounded(t *testing.T) {
	now := time.Unix(0, 0)
	pages := pages[int]{now: func() time.Time { return now }}
	look := func() ([]int, error) { return []int{1, 2}, nil }
	token := ""
	for range 10 * maxWalks {
		var err error
		if _, token, err = pages.page(whose, "", 1, look); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Millisecond)
	}
	if len(pages.walks) > maxWalks {
		t.Errorf("%d walks are kept", len(pages.walks))
	}
	if _, _, err := pages.page(whose, token, 1, look); err != nil {
		t.Error(err)
	}
}
