// Package apidoc has the test that writes docs/api.md: what the OpenAPI document says, for people, with an answer to every
// request that is an example in it.
package apidoc
