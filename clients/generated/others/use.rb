# Takes until it is denied, and reads a problem.
require "json"
require "uri"
require "openapi_client"

OpenapiClient.configure do |config|
  url = URI(ARGV.fetch(0))
  config.scheme = url.scheme
  config.host = "#{url.host}:#{url.port}"
end
decisions = OpenapiClient::DecisionsApi.new

def expect(what, holds) = holds || abort("#{what} is not as it should be")

take = ->(policy) { decisions.take({policy: policy, identifier: "ruby"}) }
3.times { |i| expect("a take", take.call("sms-send").used == i + 1) }
begin
  take.call("sms-send")
  abort("the fourth take passes")
rescue OpenapiClient::ApiError => error
  denial = JSON.parse(error.response_body)
  expect("a denial", error.code == 429 && denial["allowed"] == false && denial["retry_after_ms"].positive?)
end
begin
  take.call("none-such")
  abort("an unknown policy decides")
rescue OpenapiClient::ApiError => error
  problem = OpenapiClient::Problem.build_from_hash(JSON.parse(error.response_body))
  expect("a problem", error.code == 404 && problem.status == 404 && problem.field == "policy")
end
