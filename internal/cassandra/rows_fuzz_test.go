package cassandra

import (
	"bytes"
	"testing"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// FuzzRows reads rows with anything in them, as the driver decodes them from bytes: an
// event counts for a unit at least, and keys are whole or passed over.
func FuzzRows(f *testing.F) {
	id := store.NewEventIDs().Next(1_772_366_400_000)
	f.Add(id[:], []byte{0, 0, 0, 0, 0, 0, 0, 1}, []byte(nil), bytes.Repeat([]byte{1}, store.KeySize), "reset")
	f.Add([]byte{}, []byte{0xff}, bytes.Repeat([]byte{0xff}, 8), []byte{}, "")
	uuid, bigint := gocql.NewNativeType(4, gocql.TypeTimeUUID, ""), gocql.NewNativeType(4, gocql.TypeBigInt, "")
	f.Fuzz(func(t *testing.T, idBytes, costBytes, endsBytes, key []byte, kind string) {
		var id gocql.UUID
		var cost, ends int64
		for _, column := range []struct {
			of   gocql.TypeInfo
			data []byte
			into any
		}{{uuid, idBytes, &id}, {bigint, costBytes, &cost}, {bigint, endsBytes, &ends}} {
			if gocql.Unmarshal(column.of, column.data, column.into) != nil {
				return // the driver refuses the row
			}
		}
		event := eventOf(id, cost, ends)
		if event.Cost < 1 || event.ID != store.EventID(id) || event.At != event.ID.Instant() || int64(event.Ends) != ends {
			t.Fatalf("%v, %d, %d: %+v", id, cost, ends, event)
		}
		c, ok := changeOf(id, kind, key, ends, int(int32(cost)))
		if ok != (len(key) == store.KeySize) || ok && (!bytes.Equal(c.Key.Bytes(), key) || c.ID != event.ID || string(c.Kind) != kind) {
			t.Fatalf("%x: %+v, %v", key, c, ok)
		}
	})
}
