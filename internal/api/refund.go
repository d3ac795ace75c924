package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// refunded is the answer of refund.
type refunded struct {
	Refunded bool `json:"refunded"`
}

// decodeRefund reads {"receipt"}.
func decodeRefund(r *http.Request, m *scratch) (receipt string, err error) {
	body, err := readJSON(r, m, maxBodyLen)
	if failed := (*callError)(nil); errors.As(err, &failed) {
		failed.recorded = limiter.RecordedYes // what the receipt is for still counts
	}
	if err != nil {
		return "", err
	}
	seen, err := readObject(body, []string{"receipt"}, func(_ string, v value) (err error) {
		receipt, err = v.token()
		return err
	})
	if err == nil && !seen.has("receipt") {
		err = wrong("receipt", "It is missing.")
	}
	return receipt, err
}

// refund gives back what receipt was given for, once.
func (s *Server) refund(ctx context.Context, receipt string) (answer, error) {
	if err := s.engine.Refund(ctx, receipt); err != nil {
		return nil, &callError{recorded: recordedOf(err), err: err}
	}
	return document{refunded{true}}, nil
}
