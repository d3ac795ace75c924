package main

import (
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/ratelimitd/ratelimitd/client/httplimit"
)

// newEcho serves the shop with echo, which can wrap net/http's middleware.
func newEcho(limit *httplimit.Limiter) http.Handler {
	e := echo.New()
	e.POST("/login", echoAnswer("welcome"), echo.WrapMiddleware(limit.All(logins)))
	shop := e.Group("", echo.WrapMiddleware(limit.All(anything)))
	shop.GET("/healthz", echoAnswer("well"))
	shop.GET("/balance", echoAnswer("balance"))
	shop.POST("/withdraw", echoAnswer("withdrawn"), echo.WrapMiddleware(limit.All(withdraws)))
	shop.GET("/export", echoAnswer(strings.Repeat("x", exportLen)), echo.WrapMiddleware(limit.All(exports)))
	return e
}

func echoAnswer(text string) echo.HandlerFunc {
	return func(c echo.Context) error { return c.String(http.StatusOK, text) }
}
