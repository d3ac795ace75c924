module github.com/ratelimitd/ratelimitd/bench

go 1.26.0

replace (
	github.com/ratelimitd/ratelimitd => ../
	github.com/ratelimitd/ratelimitd/client => ../client
)

require (
	github.com/HdrHistogram/hdrhistogram-go v1.4.0
	github.com/go-chi/chi/v5 v5.5.0
	github.com/go-redis/redis_rate/v10 v10.0.1
	github.com/gocql/gocql v1.7.0
	github.com/ratelimitd/ratelimitd v0.0.0-00010101000000-000000000000
	github.com/ratelimitd/ratelimitd/client v0.1.0
	github.com/redis/go-redis/v9 v9.23.0
	github.com/sethvargo/go-limiter v0.7.1
	go.yaml.in/yaml/v4 v4.0.0
	golang.org/x/sys v0.49.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/golang/snappy v1.0.0 // indirect
	github.com/hailocab/go-hostpool v0.0.0-20160125115350-e80d13ce29ed // indirect
	github.com/sony/gobreaker/v2 v2.4.0 // indirect
	go.opentelemetry.io/otel v1.47.0 // indirect
	go.opentelemetry.io/otel/trace v1.47.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	gopkg.in/inf.v0 v0.9.1 // indirect
)
