package limiter

import (
	"errors"
	"fmt"
)

// Errors for errors.Is.
var (
	// ErrInvalid means that a request can never be served as it is. A FieldError names the field.
	ErrInvalid = errors.New("invalid request")
	// ErrUnknownPolicy means that the policy is not in force.
	ErrUnknownPolicy = errors.New("unknown policy")
	// ErrCostTooLarge means that one of the policy's limits never has room for the cost.
	ErrCostTooLarge = errors.New("cost exceeds what the limit can ever hold")
	// ErrReused means that the idempotency key was used for another request before.
	ErrReused = errors.New("idempotency key reused for another request")
	// ErrNoReceipt means that this service did not make the receipt, that it was refunded already, or that its window
	// is over.
	ErrNoReceipt = errors.New("nothing to refund")
)

// ReceiptError is an ErrNoReceipt with the reason why a receipt confirms nothing.
type ReceiptError struct {
	Why string // what is wrong with the receipt
}

// Error says what is wrong with the receipt.
func (e *ReceiptError) Error() string { return "nothing to confirm: " + e.Why }

// Is makes errors.Is(err, ErrNoReceipt) true.
func (e *ReceiptError) Is(target error) bool { return target == ErrNoReceipt }

// FieldError is an ErrInvalid that names the field of the request.
type FieldError struct {
	Field  string // as callers write it: "identifier", "cost"
	Detail string // what is wrong and what would be right
}

// Error returns the field and the detail.
func (e *FieldError) Error() string { return e.Field + ": " + e.Detail }

// Is makes errors.Is(err, ErrInvalid) true.
func (e *FieldError) Is(target error) bool { return target == ErrInvalid }

// DemandError is an error about one of several demands of a call.
type DemandError struct {
	Index int // of the demand
	Err   error
}

// Error names the demand.
func (e *DemandError) Error() string { return fmt.Sprintf("demands[%d]: %v", e.Index, e.Err) }

// Unwrap returns the error about the demand.
func (e *DemandError) Unwrap() error { return e.Err }
