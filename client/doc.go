// Package client asks a ratelimitd: may this phone number have another code?
//
// Make one Client for a process with New, and ask it from as many goroutines as there
// are. Calls that are made at the same time travel together, so that a busy process costs
// the service a fraction of what as many requests would: a lone call goes at once and as it
// is, and while some requests are under way further calls gather and go as one batch as soon
// as one of them is back. Each call keeps a deadline, a cancellation and an answer of its
// own.
//
// A denial is no error: Decision.Allowed is false. An error says that there is no decision;
// RecordedOf tells whether units may count all the same, and errors.Is whether the call was
// at fault (ErrInvalid, ErrUnknownPolicy, …) or the service (ErrUnavailable). What calls give
// while no ratelimitd answers is Options.OnUnavailable. No error holds an identifier.
//
// The package knows nothing of the server's packages, of policies' algorithms or of stores,
// and needs little beside the standard library.
package client
