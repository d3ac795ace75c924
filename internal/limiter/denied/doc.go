// Package denied remembers who was denied, so that whoever tries again and again costs nothing: what was counted for
// keys without room, and what owners told of theirs. What is remembered may only be too much; nothing is admitted by it.
package denied
