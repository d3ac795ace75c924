module github.com/ratelimitd/ratelimitd/internal/broken

go 1.26.0
