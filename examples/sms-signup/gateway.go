package main

import (
	"context"
	"maps"
	"sync"
)

// Gateway pretends to send messages and counts them by number. The zero Gateway is
// ready, and safe for concurrent use.
type Gateway struct {
	mu   sync.Mutex
	sent map[Phone]int
}

// Send counts one message to phone. It fails when ctx has ended, as a real
// gateway would; the code goes nowhere.
func (g *Gateway) Send(ctx context.Context, phone Phone, _ string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.sent == nil {
		g.sent = make(map[Phone]int)
	}
	g.sent[phone]++
	return nil
}

// Sent returns how many messages each number got.
func (g *Gateway) Sent() map[Phone]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.sent)
}
