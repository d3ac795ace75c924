<?php
// Takes until it is denied, and reads a problem.
declare(strict_types=1);

use OpenAPI\Client\Api\DecisionsApi;
use OpenAPI\Client\ApiException;
use OpenAPI\Client\Configuration;
use OpenAPI\Client\Model\Problem;
use OpenAPI\Client\Model\Take;
use OpenAPI\Client\ObjectSerializer;

require 'GuzzleHttp/autoload.php';
spl_autoload_register(function (string $class) use ($argv): void {
    require $argv[1] . '/lib/' . str_replace('\\', '/', substr($class, strlen('OpenAPI\\Client\\'))) . '.php';
});

function expect(string $what, bool $holds): void
{
    $holds or throw new Exception("$what is not as it should be");
}

function refused(callable $take): ApiException
{
    try {
        $take();
    } catch (ApiException $error) {
        return $error;
    }
    throw new Exception('it is allowed');
}

$decisions = new DecisionsApi(config: (new Configuration())->setHost($argv[2]));
$take = fn (string $policy) => $decisions->take(new Take(['policy' => $policy, 'identifier' => 'php']));
foreach ([1, 2, 3] as $used) {
    expect('a take', $take('sms-send')->getUsed() === $used);
}
$denial = refused(fn () => $take('sms-send'));
$body = json_decode($denial->getResponseBody());
expect('a denial', $denial->getCode() === 429 && $body->allowed === false && $body->retry_after_ms > 0);
$error = refused(fn () => $take('none-such'));
$problem = ObjectSerializer::deserialize($error->getResponseBody(), Problem::class);
expect('a problem', $error->getCode() === 404 && $problem->getStatus() === 404 && $problem->getField() === 'policy');
