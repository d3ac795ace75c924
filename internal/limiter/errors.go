package limiter

import (
	"errors"
	"fmt"
)

// Errors that callers tell apart with errors.Is.
var (
	// ErrInvalid is a request that can never be served as it stands; a
	// FieldError says which part of it.
	ErrInvalid = errors.New("invalid request")
	// ErrUnknownPolicy is a policy that is not in force.
	ErrUnknownPolicy = errors.New("unknown policy")
	// ErrCostTooLarge is a cost that one of the policy's limits could never hold.
	ErrCostTooLarge = errors.New("cost exceeds what the limit can ever hold")
	// ErrReused is an idempotency key that was given to another request before.
	ErrReused = errors.New("idempotency key reused for another request")
	// ErrNoReceipt is a receipt that this service did not give, that was refunded
	// already, or whose window is over.
	ErrNoReceipt = errors.New("nothing to refund")
)

// ReceiptError is an ErrNoReceipt that says why nothing is confirmed by a receipt.
type ReceiptError struct {
	Why string // what is wrong with it
}

// Error returns what is wrong with the receipt.
func (e *ReceiptError) Error() string { return "nothing to confirm: " + e.Why }

// Is makes errors.Is(err, ErrNoReceipt) true.
func (e *ReceiptError) Is(target error) bool { return target == ErrNoReceipt }

// FieldError is an ErrInvalid that names the part of the request.
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
