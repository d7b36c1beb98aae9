package checks

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"cloudprovider.ccm/sdk/fault"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

var limits = &pb.Limits{MaxBatchInstances: 3, MaxBatchLoadBalancers: 3, MaxBatchRoutes: 3, MaxBatchVolumes: 3, MaxPageSize: 50}

// vectors reads the rows of a file that all SDKs share.
func vectors[T any](t *testing.T, name string) (rows []T) {
	t.Helper()
	file, err := os.ReadFile("../../../../proto/vectors/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(file, &rows); err != nil || len(rows) == 0 {
		t.Fatalf("%d rows: %v", len(rows), err)
	}
	return rows
}

// unsigned is a number, or a text for one that JSON cannot represent.
type unsigned uint64

func (u *unsigned) UnmarshalJSON(text []byte) error {
	number, err := strconv.ParseUint(strings.Trim(string(text), `"`), 10, 64)
	*u = unsigned(number)
	return err
}

var mark = regexp.MustCompile(`\$(\d+)`)

func message(t *testing.T, name, text string) proto.Message {
	t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName("ccm.cloudprovider.v1alpha1." + protoreflect.FullName(name))
	if err != nil {
		t.Fatal(err)
	}
	spelled := mark.ReplaceAllStringFunc(text, func(found string) string {
		length, _ := strconv.Atoi(found[1:])
		return strings.Repeat("x", length)
	})
	request := kind.New().Interface()
	if err := prototext.Unmarshal([]byte(spelled), request); err != nil {
		t.Fatal(err)
	}
	return request
}

// [R:cluster-uid-required]
func TestRequestsAreRefusedAsInEverySDK(t *testing.T) {
	for _, row := range vectors[struct{ Message, Request, Reason, Field string }](t, "shapes.json") {
		err := Shape(message(t, row.Message, row.Request), limits)
		var found *fault.Error
		if err != nil && !errors.As(err, &found) {
			t.Fatalf("an error of another kind: %v", err)
		}
		reason, field := "", ""
		if found != nil {
			reason = fault.WireName(found.Reason())
		}
		if found != nil && len(found.Fields()) > 0 {
			field = found.Fields()[0].Path
		}
		if reason != row.Reason || (field != row.Field && !strings.HasPrefix(field, row.Field+".")) {
			t.Errorf("%s %s: %s at %q, want %s at %q", row.Message, row.Request, reason, field, row.Reason, row.Field)
		}
	}
}

func TestABatchTooLargeSaysTheMaximum(t *testing.T) {
	var found *fault.Error
	request := &pb.BatchGetInstancesRequest{Cluster: clusterRef(), Queries: make([]*pb.InstanceQuery, 4)}
	if err := Shape(request, limits); !errors.As(err, &found) || found.Metadata("max") != "3" {
		t.Errorf("refused with %v", err)
	}
}

func TestNothingIsRequiredWhereNoClusterIsNamed(t *testing.T) {
	for _, request := range []any{&pb.GetStatusRequest{}, &pb.GetCapabilitiesRequest{}} {
		if err := Shape(request, limits); err != nil {
			t.Errorf("%T: %v", request, err)
		}
	}
}

func many[T any](n int, make func(at string) T) (items []T) {
	for i := range n {
		items = append(items, make(fmt.Sprint(i)))
	}
	return items
}

func clusterRef() *pb.ClusterRef { return &pb.ClusterRef{Uid: "c"} }

func TestPageSizesFitTheLimit(t *testing.T) {
	for asked, want := range map[int32]int32{0: 50, 1: 1, 50: 50, 51: 50, math.MaxInt32: 50} {
		request := &pb.ListRoutesRequest{Cluster: clusterRef(), PageSize: asked}
		if Fit(request, limits); request.GetPageSize() != want {
			t.Errorf("%d became %d, want %d", asked, request.GetPageSize(), want)
		}
	}
	request := &pb.ListRoutesRequest{}
	if Fit(request, &pb.Limits{MaxPageSize: math.MaxUint32}); request.GetPageSize() != math.MaxInt32 {
		t.Errorf("the largest limit became %d", request.GetPageSize())
	}
}

// [R:stale-revision]
func TestRevisionsGrowAsInEverySDK(t *testing.T) {
	revisions := &Revisions{}
	for i, row := range vectors[struct {
		Cluster, Service string
		Revision         unsigned
		Refused          bool
	}](t, "revisions.json") {
		err := revisions.Accept(balancer(&pb.ClusterRef{Uid: row.Cluster}, row.Service), uint64(row.Revision))
		if stale := fault.ReasonOf(err) == pb.ErrorReason_ERROR_REASON_STALE_REVISION; stale != row.Refused {
			t.Errorf("row %d: %v", i, err)
		}
	}
}

func TestMemoryOfRevisionsIsBoundedAndTheNewestStay(t *testing.T) {
	revisions := &Revisions{}
	for service := range remembered + 1 {
		if err := revisions.Accept(Subject{Name: fmt.Sprint(service)}, 9); err != nil {
			t.Fatal(err)
		}
	}
	if len(revisions.highest) > remembered {
		t.Errorf("%d services are remembered", len(revisions.highest))
	}
	if revisions.Accept(Subject{Name: "0"}, 1) != nil || revisions.Accept(Subject{Name: fmt.Sprint(remembered)}, 1) == nil {
		t.Error("the wrong ones were forgotten")
	}
}
