package sdk

import (
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
)

func page(cluster, token string, size int32) *pb.ListInstancesRequest {
	return &pb.ListInstancesRequest{Cluster: &pb.ClusterRef{Uid: cluster}, PageToken: token, PageSize: size}
}

// spelled returns a text; "$3000" means 3000 bytes.
func spelled(text string) string {
	if length, long := strings.CutPrefix(text, "$"); long {
		count, _ := strconv.Atoi(length)
		return strings.Repeat("x", count)
	}
	return text
}

// [R:page-token-validity]
func TestTokensStandForThoseOfCloudsAsInEverySDK(t *testing.T) {
	file, err := os.ReadFile("../../proto/vectors/tokens.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		At                                                       int
		Seal                                                     *string
		As, Open, Token, List, Cluster, Process, Becomes, Reason string
		Altered                                                  bool
	}
	if err := json.Unmarshal(file, &rows); err != nil || len(rows) == 0 {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		pagers := map[string]*Pager{"": NewPager(0), "other": NewPager(0)}
		start, issued := time.Now(), map[string]string{}
		for _, row := range rows {
			time.Sleep(time.Duration(row.At)*time.Second - time.Since(start))
			cluster, token := "c-1", row.Token
			if row.Cluster != "" {
				cluster = row.Cluster
			}
			if row.Seal != nil {
				issued[row.As] = pagers[""].Seal(page(cluster, "", 0), spelled(*row.Seal))
				if len(issued[row.As]) > 1024 {
					t.Errorf("%+v: %d bytes", row, len(issued[row.As]))
				}
				continue
			}
			if row.Open != "" {
				token = issued[row.Open]
			}
			if row.Altered {
				first := "A"
				if strings.HasPrefix(token, first) {
					first = "B"
				}
				token = first + token[1:]
			}
			var request PageRequest = page(cluster, token, 0)
			if row.List == "ListRoutes" {
				request = &pb.ListRoutesRequest{Cluster: request.GetCluster(), PageToken: token}
			}
			opened, err := pagers[row.Process].Open(request)
			reason := ""
			if err != nil {
				reason = fault.WireName(fault.ReasonOf(err))
			}
			if reason != row.Reason || err == nil && opened != spelled(row.Becomes) {
				t.Errorf("%+v: %q %v", row, opened, err)
			}
		}
	})
}

func walk(t *testing.T, items string, size int32) (pages []string) {
	t.Helper()
	pager, token := NewPager(0), ""
	for {
		found, next, err := Page(pager, page("c", token, size), strings.Split(items, ""), func(item string) string { return item })
		if err != nil {
			t.Fatal(err)
		}
		if pages = append(pages, strings.Join(found, "")); next == "" {
			return pages
		}
		token = next
	}
}

// [R:page-walk-ends]
func TestAWalkSeesEverythingOnceAndEnds(t *testing.T) {
	for items, want := range map[string][]string{"": {""}, "a": {"a"}, "ba": {"ab"}, "cab": {"ab", "c"}, "edcba": {"ab", "cd", "e"}} {
		if pages := walk(t, items, 2); !slices.Equal(pages, want) {
			t.Errorf("%q: %q", items, pages)
		}
	}
	if pages := walk(t, "dcba", 0); !slices.Equal(pages, []string{"abcd"}) {
		t.Errorf("%q", pages)
	}
}

func TestWhatComesAndGoesDuringAWalkCostsTheOthersNothing(t *testing.T) {
	pager, key := NewPager(0), func(item string) string { return item }
	_, token, _ := Page(pager, page("c", "", 2), []string{"a", "b", "c", "d"}, key)
	second, _, err := Page(pager, page("c", token, 2), []string{"a", "aa", "c", "d"}, key)
	again, _, _ := Page(pager, page("c", token, 2), []string{"c", "d"}, key)
	if want := []string{"c", "d"}; err != nil || !slices.Equal(second, want) || !slices.Equal(again, want) {
		t.Error(second, again, err)
	}
}

func TestLongTokensTakeABoundedPlace(t *testing.T) {
	pager, long := NewPager(0), strings.Repeat("x", longestWithin+1)
	first := pager.Seal(page("c", "", 0), long)
	for range mostKept {
		pager.Seal(page("c", "", 0), long)
	}
	if _, err := pager.Open(page("c", first, 0)); len(pager.kept) != mostKept || fault.ReasonOf(err) != pb.ErrorReason_ERROR_REASON_PAGE_TOKEN_EXPIRED {
		t.Error(len(pager.kept), err)
	}
}
