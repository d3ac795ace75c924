// Package apidoc has the test that writes docs/api.md from the OpenAPI document, with the answer to each of its example
// requests.
package apidoc
