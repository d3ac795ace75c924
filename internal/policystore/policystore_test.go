package policystore_test

import (
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/policystore"
	"github.com/ratelimitd/ratelimitd/internal/policystore/policystoretest"
)

func TestMemory(t *testing.T) { policystoretest.Run(t, new(policystore.Memory)) }
