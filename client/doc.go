// Package client asks a ratelimitd: may this phone number have another code?
//
// Make one Client per process with New, and use it from all goroutines: concurrent calls share requests. A lone call is
// sent at once, as a request of its own. While some requests are under way, further calls wait and go as one batch as
// soon as one of those is answered. Each call keeps a deadline, a cancellation and an answer of its own.
//
// A denial is not an error: Decision.Allowed is false. An error says that there is no decision.
// RecordedOf returns whether units may count all the same, and errors.Is distinguishes invalid calls (ErrInvalid,
// ErrUnknownPolicy, …) from a service that does not decide (ErrUnavailable). Options.OnUnavailable is the result of
// calls while no ratelimitd answers. No error has an identifier.
//
// Requests are part of the OpenTelemetry trace in the caller's context. A request that several calls share is part of
// the first sampled trace.
//
// Package join lets calls share requests, transport speaks HTTP, circuit lets requests fail at once while the service
// is down, line lets calls wait in turn, and jsonscan reads JSON. None of them imports another. This package writes
// calls and reads answers.
//
// The package does not import the server's packages, and knows neither algorithms nor stores. Its module needs little
// beside the standard library: README.md lists its dependencies.
package client
