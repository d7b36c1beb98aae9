package sdk

import (
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

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

// [R:page-token-refused]
func TestTokensStandForThoseOfCloudsAsInEverySDK(t *testing.T) {
	file, err := os.ReadFile("../../proto/vectors/tokens.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		Position, Token *string
		Reason, Why     string
	}
	if err := json.Unmarshal(file, &rows); err != nil || len(rows) == 0 {
		t.Fatal(err)
	}
	for _, row := range rows {
		if row.Position == nil {
			if _, err := OpenPageToken(page("c-1", *row.Token, 0)); fault.WireName(fault.ReasonOf(err)) != row.Reason {
				t.Errorf("%q: %v", row.Why, err)
			}
			continue
		}
		position := spelled(*row.Position)
		token, err := SealPageToken(page("c-1", "", 0), position)
		if err != nil {
			if !strings.Contains(row.Why, "fits into no token") {
				t.Error(err)
			}
			continue
		}
		if row.Token != nil && *row.Token != token {
			t.Errorf("%q became %q", *row.Position, token)
		}
		if opened, err := OpenPageToken(page("c-1", token, 0)); opened != position {
			t.Errorf("%q became %q: %v", *row.Position, opened, err)
		}
	}
}

func walk(t *testing.T, items string, size int32) (pages []string) {
	t.Helper()
	token := ""
	for {
		found, next, err := Page(page("c", token, size), strings.Split(items, ""), func(item string) string { return item })
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
	key := func(item string) string { return item }
	_, token, _ := Page(page("c", "", 2), []string{"a", "b", "c", "d"}, key)
	second, _, err := Page(page("c", token, 2), []string{"a", "aa", "c", "d"}, key)
	again, _, _ := Page(page("c", token, 2), []string{"c", "d"}, key)
	if want := []string{"c", "d"}; err != nil || !slices.Equal(second, want) || !slices.Equal(again, want) {
		t.Error(second, again, err)
	}
}
