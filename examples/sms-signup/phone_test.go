package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestSpellingsOfANumberAreOnePhone(t *testing.T) {
	for _, text := range []string{
		"+447700900123", "+44 7700 900123", " +44-7700-900-123 ", "0044 7700 900123", "+44 (7700) 900.123", "+44/7700/900123",
	} {
		if got, err := ParsePhone(text); err != nil || string(got) != "+447700900123" {
			t.Errorf("%q: %q, %v", text, string(got), err)
		}
	}
}

func TestInvalidNumbersAreRefused(t *testing.T) {
	for _, text := range []string{
		"", "+", "07700 900123", "+044 7700 900123", "+44 7700", "+1234567890123456", "+44 7700 90012x", "+44\n7700900123",
	} {
		if got, err := ParsePhone(text); err == nil || got != "" {
			t.Errorf("%q: %q", text, string(got))
		}
	}
}

func TestPhonesPrintAsAPlaceholder(t *testing.T) {
	phone := Phone("+447700900123")
	if text := fmt.Sprintf("%v %s %q %+v", phone, phone, phone, struct{ P Phone }{phone}); strings.Contains(text, "7700") {
		t.Error(text)
	}
}
