package serve

import "testing"

// TestRoomWithinFiles is shared so that no listener can use up the files of another one.
func TestRoomWithinFiles(t *testing.T) {
	for _, c := range []struct {
		name             string
		files, listeners int
		wanted, want     room
	}{
		{"nobody knows the limit", 0, 3, room{16384, 4096}, room{16384, 4096}},
		{"all fit exactly", 3*16384 + 4096 + 256, 3, room{16384, 4096}, room{16384, 4096}},
		{"one is missing", 3*16384 + 4096 + 255, 3, room{16384, 4096}, room{13311, 4096}},
		{"the package's limit once was", 32768, 2, room{16384, 4096}, room{10837, 4096}},
		{"the API alone", 1024, 1, room{16384, 0}, room{768, 0}},
		{"a proxy in a shell of 1024", 1024, 2, room{16384, 4096}, room{256, 256}},
		{"few", 300, 2, room{16384, 4096}, room{50, 50}},
		{"hardly any", 1, 3, room{16384, 4096}, room{1, 1}},
		{"what is asked for is little", 1024, 2, room{100, 50}, room{100, 50}},
	} {
		got := c.wanted.within(c.files, c.listeners)
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
		if used := c.listeners*got.connections + got.requests; c.files > 10 && used >= c.files {
			t.Errorf("%s: %d of %d files", c.name, used, c.files)
		}
	}
}
