package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// Gateway pretends to send messages and counts them by number. The zero Gateway is
// ready, never fails, and is safe for concurrent use.
type Gateway struct {
	Refuse int // one of this many messages is refused; 0: none
	Lose   int // one of this many messages is accepted but does not arrive; 0: none

	mu    sync.Mutex
	asked int
	sent  map[Phone]int
	calls map[Phone]int
	lost  []string
}

var errRefused = errors.New("the gateway refuses the message")

// Send counts one message to phone, and returns its name in the gateway's reports. It
// fails if ctx has ended, like a real gateway. The code goes nowhere.
func (g *Gateway) Send(ctx context.Context, phone Phone, _ string) (message string, err error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked++
	if isTurn(g.asked, g.Refuse) {
		return "", errRefused
	}
	message = fmt.Sprintf("message-%d", g.asked)
	if isTurn(g.asked, g.Lose) {
		g.lost = append(g.lost, message)
		return message, nil
	}
	if g.sent == nil {
		g.sent = make(map[Phone]int)
	}
	g.sent[phone]++
	return message, nil
}

// Call counts one call to phone, in which the code is read out. It fails like Send.
func (g *Gateway) Call(ctx context.Context, phone Phone, _ string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asked++
	if isTurn(g.asked, g.Refuse) {
		return errRefused
	}
	if g.calls == nil {
		g.calls = make(map[Phone]int)
	}
	g.calls[phone]++
	return nil
}

// Calls returns how many calls each number got.
func (g *Gateway) Calls() map[Phone]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.calls)
}

func isTurn(n, every int) bool { return every > 0 && n%every == 0 }

// Sent returns how many messages each number got.
func (g *Gateway) Sent() map[Phone]int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.sent)
}

// Lost returns the messages that were accepted and did not arrive.
func (g *Gateway) Lost() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.lost)
}
