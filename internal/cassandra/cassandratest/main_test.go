package cassandratest_test

import (
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
)

func TestMain(m *testing.M) { cassandratest.Main(m) }
