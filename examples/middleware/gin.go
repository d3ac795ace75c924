package main

import (
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/ratelimitd/ratelimitd/client/httplimit"
)

// newGin serves the shop with gin.
func newGin(limit *httplimit.Limiter) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	r := gin.New()
	r.POST("/login", ginned(limit.All(logins)), ginAnswer("welcome"))
	shop := r.Group("", ginned(limit.All(anything)))
	shop.GET("/healthz", ginAnswer("well"))
	shop.GET("/balance", ginAnswer("balance"))
	shop.POST("/withdraw", ginned(limit.All(withdraws)), ginAnswer("withdrawn"))
	shop.GET("/export", ginned(limit.All(exports)), ginAnswer(strings.Repeat("x", exportLen)))
	return r
}

func ginAnswer(text string) gin.HandlerFunc {
	return func(c *gin.Context) { c.String(http.StatusOK, "%s", text) }
}

// ginned turns net/http's middleware into gin's.
func ginned(middleware func(http.Handler) http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		before, passed := c.Writer, false
		next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			passed = true
			c.Request, c.Writer = r, &ginWriter{before, w}
			c.Next()
		})
		middleware(next).ServeHTTP(before, c.Request)
		c.Writer = before
		if !passed {
			c.Abort()
		}
	}
}

// ginWriter lets gin write its answers through the middleware, which may count them.
type ginWriter struct {
	gin.ResponseWriter
	through http.ResponseWriter
}

// Write writes through the middleware.
func (w *ginWriter) Write(b []byte) (int, error) { return w.through.Write(b) }

// WriteString writes through the middleware.
func (w *ginWriter) WriteString(text string) (int, error) { return w.through.Write([]byte(text)) }

// WriteHeader writes through the middleware.
func (w *ginWriter) WriteHeader(status int) { w.through.WriteHeader(status) }
