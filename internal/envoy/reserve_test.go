package envoy_test

import (
	"context"
	"slices"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// asBytes sends and receives messages as they are on the wire.
type asBytes struct{}

func (asBytes) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (asBytes) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = slices.Clone(data)
	return nil
}

func (asBytes) Name() string { return "proto" }

// kuadrant calls a method of Limitador's service.
func (f *front) kuadrant(method string, message []byte) (answer []byte, err error) {
	err = f.conn.Invoke(context.Background(), "/kuadrant.service.ratelimit.v1.RateLimitService/"+method, &message, &answer,
		grpc.ForceCodec(asBytes{}))
	return answer, err
}

// about returns the domain and the descriptors of a message.
func about(descriptors []*common.RateLimitDescriptor) []byte {
	b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "edge")
	for _, d := range descriptors {
		wire, _ := proto.Marshal(d)
		b = protowire.AppendBytes(protowire.AppendTag(b, 2, protowire.BytesType), wire)
	}
	return b
}

// reserveMessage returns a request of Reserve in the form of Limitador's proto.
func reserveMessage(amount uint64, ttl *durationpb.Duration, descriptors ...*common.RateLimitDescriptor) []byte {
	b := protowire.AppendVarint(protowire.AppendTag(about(descriptors), 3, protowire.VarintType), amount)
	if ttl != nil {
		wire, _ := proto.Marshal(ttl)
		b = protowire.AppendBytes(protowire.AppendTag(b, 4, protowire.BytesType), wire)
	}
	return b
}

// reserve sends a request of Reserve, checks the code, and returns the reservation_id.
func (f *front) reserve(want rls.RateLimitResponse_Code, message []byte) (id string) {
	f.t.Helper()
	answer, err := f.kuadrant("Reserve", message)
	if err != nil {
		f.t.Fatal(err)
	}
	code := rls.RateLimitResponse_UNKNOWN
	for len(answer) > 0 {
		number, kind, n := protowire.ConsumeTag(answer)
		answer = answer[n:]
		switch {
		case number == 1 && kind == protowire.VarintType:
			value, n := protowire.ConsumeVarint(answer)
			code, answer = rls.RateLimitResponse_Code(value), answer[n:]
		case number == 2 && kind == protowire.BytesType:
			value, n := protowire.ConsumeString(answer)
			id, answer = value, answer[n:]
		default:
			f.t.Fatalf("field %d of a ReserveResponse", number)
		}
	}
	if code != want {
		f.t.Errorf("code %v, want %v", code, want)
	}
	return id
}

// commit sends a request of Commit, and checks reservation_released.
func (f *front) commit(released bool, id string, amount uint64, descriptors ...*common.RateLimitDescriptor) {
	f.t.Helper()
	b := protowire.AppendString(protowire.AppendTag(about(descriptors), 3, protowire.BytesType), id)
	b = protowire.AppendVarint(protowire.AppendTag(b, 4, protowire.VarintType), amount)
	answer, err := f.kuadrant("Commit", b)
	if got := slices.Equal(answer, []byte{1 << 3, 1}); err != nil || got != released {
		f.t.Errorf("released %v by %v, want %v: %v", got, answer, released, err)
	}
}

const tokensFile = `
policies:
  - {name: tokens, limits: [{algorithm: sliding-log, limit: 10000, window: 1h}]}
  - {name: shadowed, limits: [{algorithm: sliding-log, limit: 10, window: 1h}], mode: shadow}
envoy:
  domains:
    - domain: edge
      descriptors: [{key: user, policy: tokens}, {key: team, policy: tokens}, {key: shadow, policy: shadowed}]
`

// TestReserveAndCommit holds that an estimate is held, and that the actual amount counts in its place.
func TestReserveAndCommit(t *testing.T) {
	f := newFront(t, tokensFile, settings{})
	a, b := descriptor("user=a"), descriptor("team=b")
	used := func(d *common.RateLimitDescriptor, want uint32) {
		t.Helper()
		answer, err := f.kuadrant("CheckRateLimit", about([]*common.RateLimitDescriptor{d}))
		var r rls.RateLimitResponse
		if err := proto.Unmarshal(answer, &r); err != nil {
			t.Fatal(err)
		}
		if got := 10000 - r.GetStatuses()[0].GetLimitRemaining(); err != nil || got != want {
			t.Errorf("%v: used %d, want %d: %v", d, got, want, err)
		}
	}
	const ok, over = rls.RateLimitResponse_OK, rls.RateLimitResponse_OVER_LIMIT
	held := f.reserve(ok, reserveMessage(4000, nil, a, b))
	used(a, 4000)
	if id := f.reserve(over, reserveMessage(6001, nil, a)); id != "" {
		t.Errorf("what is over the limit has the reservation %q", id)
	}
	f.commit(true, held, 1312, a, b)
	used(a, 1312)
	used(b, 1312)
	f.commit(true, held, 1312, a, b) // once
	used(a, 1312)
	f.commit(false, "", 100, a) // as a report
	f.commit(false, "unknown", 100, a)
	used(a, 1512)
	f.commit(true, f.reserve(ok, reserveMessage(1000, nil, a)), 9000, a) // more than was held, and than the limit
	if id := f.reserve(over, reserveMessage(0, nil, a)); id != "" {
		t.Errorf("what is over the limit has the reservation %q", id)
	}
	f.commit(true, f.reserve(ok, reserveMessage(500, nil, b)), 0, b) // a request that failed
	used(b, 1312)
	if id := f.reserve(ok, reserveMessage(0, nil, b)); id != "" {
		t.Errorf("without an amount there is the reservation %q", id)
	}
	f.reserve(over, reserveMessage(10001, nil, b))                  // more than the limit can ever hold
	f.reserve(ok, reserveMessage(500, nil, b, b))                   // the same counter twice is one
	f.reserve(ok, reserveMessage(5, nil, descriptor("unmapped=x"))) // passes
	f.reserve(ok, reserveMessage(11, nil, descriptor("shadow=x")))  // denies nothing
	f.commit(false, "forged", 5, descriptor("unmapped=x"))          // counts nothing
	f.commit(false, "", 0, b)                                       // neither
	used(b, 1812)
	if requests, _ := f.seen(); !slices.Contains(requests, "Reserve OVER_LIMIT") || !slices.Contains(requests, "Commit OK") {
		t.Errorf("observed %q", requests)
	}
}

// TestHoldOfAReserve holds that a reservation lasts as long as requested, a minute at most, and that a later Commit
// counts as a Report.
func TestHoldOfAReserve(t *testing.T) {
	for _, c := range []struct {
		ttl  *durationpb.Duration
		want time.Duration
	}{
		{nil, time.Minute}, {durationpb.New(5 * time.Second), 5 * time.Second}, {durationpb.New(time.Hour), time.Minute},
		{durationpb.New(-time.Second), time.Minute}, {durationpb.New(0), time.Millisecond},
	} {
		f := newFront(t, tokensFile, settings{})
		d := descriptor("user=a")
		id := f.reserve(rls.RateLimitResponse_OK, reserveMessage(9000, c.ttl, d))
		if c.want > time.Millisecond {
			f.clock.turn(c.want - time.Millisecond)
			f.reserve(rls.RateLimitResponse_OVER_LIMIT, reserveMessage(2000, nil, d))
		}
		f.clock.turn(time.Millisecond)
		f.reserve(rls.RateLimitResponse_OK, reserveMessage(2000, c.ttl, d))
		f.commit(false, id, 100, d)
	}
}

// TestWrongReserve holds which Reserves and Commits are refused.
func TestWrongReserve(t *testing.T) {
	f := newFront(t, tokensFile, settings{})
	d := descriptor("user=a")
	for name, message := range map[string][]byte{
		"no domain":         protowire.AppendVarint(protowire.AppendTag(nil, 3, protowire.VarintType), 5),
		"no descriptors":    about(nil),
		"too much":          reserveMessage(1e12+1, nil, d),
		"beyond all limits": reserveMessage(1<<64-1, nil, d),
	} {
		if _, err := f.kuadrant("Reserve", message); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, message := range map[string][]byte{
		"nothing of a field": {3 << 3}, "a wrong duration": append(reserveMessage(1, nil, d), 4<<3|2, 1, 7),
	} {
		if _, err := f.kuadrant("Reserve", message); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
