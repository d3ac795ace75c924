package main

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

// Bounds of counting sent messages.
const (
	// holdFor is longer than the gateway and three tries to settle can take, but no longer than
	// a person will wait after the gateway failed.
	holdFor = 10 * time.Second
	// settleTries bounds the attempts to record a sent code. A repetition
	// does not count twice.
	settleTries = 3
	// maxReceipts bounds the messages without a report of the gateway. Receipts beyond it are
	// not kept, so their messages count even if they are lost.
	maxReceipts = 100_000
)

// receipts are the receipts of messages, by message. The zero value is ready.
type receipts struct {
	mu sync.Mutex
	of map[string]string
}

func (r *receipts) keep(message, receipt string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = make(map[string]string)
	}
	if receipt != "" && len(r.of) < maxReceipts {
		r.of[message] = receipt
	}
}

// take returns the receipt for message, and forgets it.
func (r *receipts) take(message string) (receipt string, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	receipt, known = r.of[message]
	delete(r.of, message)
	return receipt, known
}

// settle records the code that was sent as message, whether or not the client is still there, and keeps the receipt
// until the gateway reports on the message.
func (s *Signup) settle(ctx context.Context, phone Phone, reservation, message string) {
	ctx = context.WithoutCancel(ctx)
	var failed error
	for range settleTries {
		recorded, err := s.limits.Settle(ctx, demandsOf(phone), reservation)
		if err == nil {
			s.receipts.keep(message, recorded.Receipt)
			return
		}
		failed = err
	}
	s.log.Error("a code was sent and may not count", "error", failed)
}

// delivery serves POST /delivery {"message": "...", "delivered": false}, with which the gateway
// reports on a message. A message that did not arrive is refunded, so its receiver may
// have another one at once.
func (s *Signup) delivery(w http.ResponseWriter, r *http.Request) {
	var report struct {
		Message   string `json:"message"`
		Delivered bool   `json:"delivered"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&report); err != nil {
		answer(w, http.StatusBadRequest, 0, `send {"message": "...", "delivered": false} as JSON`)
		return
	}
	receipt, known := s.receipts.take(report.Message)
	switch {
	case !known:
		answer(w, http.StatusNotFound, 0, "no such message")
		return
	case report.Delivered:
	default:
		if err := s.limits.Refund(r.Context(), receipt); err != nil { // the unit stays counted, which is safe
			s.log.Warn("a code that was lost counts all the same", "error", err)
		}
	}
	answer(w, http.StatusOK, 0, "thank you")
}
