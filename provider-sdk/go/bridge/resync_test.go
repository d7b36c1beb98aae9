package bridge

import (
	"reflect"
	"testing"
	"time"
)

// Some providers repair in their handlers, at each resync, what an event before did not reach.
func TestTheInformersOfAProviderAreResynced(t *testing.T) {
	stop := make(chan struct{})
	defer close(stop)
	periods := map[time.Duration]bool{}
	for range 3 {
		b := &bridge{}
		if err := b.surround(stop); err != nil {
			t.Fatal(err)
		}
		period := time.Duration(reflect.ValueOf(b.surroundings.shared).Elem().FieldByName("defaultResync").Int())
		if period < 12*time.Hour || period >= 24*time.Hour {
			t.Error(period)
		}
		periods[period] = true
	}
	if len(periods) < 2 {
		t.Error("all processes resync at once", periods)
	}
}
