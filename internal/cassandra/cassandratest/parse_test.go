package cassandratest

import (
	"slices"
	"testing"
)

func TestParseHosts(t *testing.T) {
	tests := []struct {
		list string
		want []string
	}{
		{"", nil},
		{" , ", nil},
		{"127.0.0.1", []string{"127.0.0.1:9042"}},
		{"a:9043, b ,", []string{"a:9043", "b:9042"}},
		{"[::1]:9042", []string{"[::1]:9042"}},
		{"::1", []string{"[::1]:9042"}},
	}
	for _, test := range tests {
		got, err := parseHosts(test.list)
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("parseHosts(%q) = %q, %v; want %q", test.list, got, err, test.want)
		}
	}
	for _, wrong := range []string{":9042", "a:", "a:0", "a:65536", "a:port", "http://a:9042", "two words"} {
		if got, err := parseHosts(wrong); err == nil {
			t.Errorf("parseHosts(%q) = %q; want an error", wrong, got)
		}
	}
}
