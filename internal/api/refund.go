package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/ratelimitd/ratelimitd/internal/api/decode"
	"github.com/ratelimitd/ratelimitd/internal/api/encode"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
)

// refunded is the answer of refund.
type refunded struct {
	Refunded bool `json:"refunded"`
}

// decodeReceipt reads {"receipt"}.
func decodeReceipt(r *http.Request, m *scratch) (receipt string, err error) {
	body, err := m.readJSON(r, decode.MaxBody)
	if failed := (*decode.CallError)(nil); errors.As(err, &failed) {
		failed.Recorded = count.RecordedYes // the units of the receipt still count
	}
	if err != nil {
		return "", err
	}
	seen, err := decode.ReadObject(body, []string{"receipt"}, func(_ string, v decode.Value) (err error) {
		receipt, err = v.Token()
		return err
	})
	if err == nil {
		err = seen.Require("receipt")
	}
	return receipt, err
}

// refund refunds the units of receipt, once.
func (s *Server) refund(ctx context.Context, receipt string) (answer, error) {
	if err := s.engine.Refund(ctx, receipt); err != nil {
		return nil, decode.Undone(err)
	}
	return encode.Document{Content: refunded{true}}, nil
}
