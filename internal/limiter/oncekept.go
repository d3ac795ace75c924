package limiter

import (
	"encoding/json"
	"errors"
)

var errKeptAnswer = errors.New("it says answered, and has no answer that this version can tell")

// UnmarshalJSON reads the stored use of an idempotency key. It refuses an answer that can't be repeated: the call is
// then answered 503, and counts nothing.
func (u *usage) UnmarshalJSON(b []byte) error {
	type fields usage
	if err := json.Unmarshal(b, (*fields)(u)); err != nil {
		return err
	}
	if u.State == usageAnswered && !u.Answer.whole() {
		return errKeptAnswer
	}
	return nil
}

// whole reports whether s has at least one decision, and each decision a verdict for every limit.
func (s *storedAnswer) whole() bool {
	if s == nil || len(s.Demands) == 0 {
		return false
	}
	for i := range s.Demands {
		d := &s.Demands[i]
		if len(d.Limits) != len(d.Verdicts) || d.Tightest < 0 || d.Tightest >= len(d.Limits) {
			return false
		}
	}
	return true
}
