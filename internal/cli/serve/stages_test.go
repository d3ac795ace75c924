package serve

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// stagesOf returns three stages that each take a second to end, and say when.
func stagesOf(ended *[]string) []stage {
	var stages []stage
	for _, name := range []string{"server", "engine", "store"} {
		stages = append(stages, func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Second) // in a synctest bubble: no time passes
			*ended = append(*ended, name)
			return nil
		})
	}
	return stages
}

func TestStagesEndOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var ended []string
		started := time.Now()
		if err := inOrder(ctx, stagesOf(&ended)...); err != nil {
			t.Errorf("error: %v", err)
		}
		if want := []string{"server", "engine", "store"}; !slices.Equal(ended, want) {
			t.Errorf("ended: %v, want %v", ended, want)
		}
		if took := time.Since(started); took != time.Hour+3*time.Second {
			t.Errorf("took %v, want an hour and a second for each stage", took)
		}
	})
}

func TestAFailedStageEndsAllInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended []string
		failed := errors.New("lost")
		stages := append(stagesOf(&ended), func(context.Context) error { return failed })
		if err := inOrder(t.Context(), stages...); !errors.Is(err, failed) {
			t.Errorf("error: %v, want %v", err, failed)
		}
		if want := []string{"server", "engine", "store"}; !slices.Equal(ended, want) {
			t.Errorf("ended: %v, want %v", ended, want)
		}
	})
}
