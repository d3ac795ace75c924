package io.github.ratelimitd.spring;

import io.github.ratelimitd.client.RatelimitdClient;
import io.github.ratelimitd.client.RatelimitdClientBuilder;
import java.util.List;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.SmartInitializingSingleton;
import org.springframework.beans.factory.BeanFactory;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnExpression;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnWebApplication;
import org.springframework.boot.autoconfigure.condition.ConditionalOnWebApplication.Type;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.boot.ssl.SslBundles;
import org.springframework.cloud.gateway.filter.ratelimit.KeyResolver;
import org.springframework.cloud.gateway.support.ConfigurationService;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Primary;
import org.springframework.web.method.HandlerMethod;
import org.springframework.web.reactive.result.method.annotation.RequestMappingHandlerAdapter;
import org.springframework.web.servlet.config.annotation.InterceptorRegistry;
import org.springframework.web.servlet.config.annotation.WebMvcConfigurer;
import org.springframework.web.servlet.mvc.method.annotation.RequestMappingHandlerMapping;

/**
 * Limits requests of web applications by the properties below {@code ratelimitd} and by {@link RateLimited}. A {@link
 * RatelimitdClient} that the application defines replaces the one of the properties.
 */
@AutoConfiguration(
        afterName = "org.springframework.boot.autoconfigure.ssl.SslAutoConfiguration",
        beforeName = "org.springframework.cloud.gateway.config.GatewayAutoConfiguration")
@EnableConfigurationProperties(RatelimitdProperties.class)
public class RatelimitdAutoConfiguration {
    /** Applies like to Spring Boot's own indicators, whose annotation for that has moved between versions. */
    private static final String HEALTH_ENABLED =
            "${management.health.ratelimitd.enabled:${management.health.defaults.enabled:true}}";

    /** Makes the configuration. */
    public RatelimitdAutoConfiguration() {}

    @Bean
    @ConditionalOnMissingBean
    RatelimitdClient ratelimitdClient(RatelimitdProperties properties, ObjectProvider<SslBundles> bundles) {
        RatelimitdClientBuilder builder = RatelimitdClient.builder(properties.urls().toArray(String[]::new))
                .timeout(properties.timeout())
                .retries(properties.retries())
                .onUnavailable(properties.onUnavailable());
        if (properties.token() != null) {
            builder.token(properties.token());
        }
        if (properties.sslBundle() != null) {
            builder.sslContext(bundles.getObject().getBundle(properties.sslBundle()).createSslContext());
        }
        return builder.build();
    }

    @Bean
    Limiter ratelimitdLimiter(
            RatelimitdClient client, RatelimitdProperties properties, ObjectProvider<Limiter.Outcomes> outcomes) {
        return new Limiter(client, properties.failClosed(), outcomes.getIfAvailable(() -> (policies, outcome) -> {}));
    }

    @Bean
    Callers ratelimitdCallers(RatelimitdProperties properties, BeanFactory beans) {
        return new Callers(
                new Addresses(properties.trustedProxies()), name -> beans.getBean(name, CallerResolver.class));
    }

    @Bean
    Rules ratelimitdRules(RatelimitdProperties properties, Callers callers, BeanFactory beans) {
        return new Rules(properties, callers, name -> beans.getBean(name, LimitResolver.class));
    }

    @Bean
    Probe ratelimitdProbe(RatelimitdClient client, RatelimitdProperties properties) {
        return new Probe(client, properties.checkedPolicy());
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnWebApplication(type = Type.SERVLET)
    @ConditionalOnClass(WebMvcConfigurer.class)
    static class OfServlets {
        @Bean
        ServletLimits.RouteFilter ratelimitdFilter(Limiter limiter, Rules rules) {
            return new ServletLimits.RouteFilter(limiter, rules);
        }

        @Bean
        WebMvcConfigurer ratelimitdInterceptors(Limiter limiter, Rules rules) {
            return new WebMvcConfigurer() {
                @Override
                public void addInterceptors(InterceptorRegistry registry) {
                    registry.addInterceptor(new ServletLimits.AnnotationInterceptor(limiter, rules));
                }
            };
        }

        @Bean
        SmartInitializingSingleton ratelimitdAnnotations(Rules rules, ObjectProvider<RequestMappingHandlerMapping> mappings) {
            return () -> mappings.forEach(mapping -> rules.check(mapping.getHandlerMethods().values()));
        }
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnWebApplication(type = Type.REACTIVE)
    static class OfWebFlux {
        @Bean
        ReactiveLimits.RouteFilter ratelimitdFilter(Limiter limiter, Rules rules) {
            return new ReactiveLimits.RouteFilter(limiter, rules);
        }

        @Bean
        ReactiveLimits.AnnotationAdapter ratelimitdAdapter(
                Limiter limiter, Rules rules, ObjectProvider<RequestMappingHandlerAdapter> adapter) {
            return new ReactiveLimits.AnnotationAdapter(limiter, rules, adapter::getObject);
        }

        @Bean
        SmartInitializingSingleton ratelimitdAnnotations(
                Rules rules,
                ObjectProvider<org.springframework.web.reactive.result.method.annotation.RequestMappingHandlerMapping>
                        mappings) {
            return () -> mappings.forEach(mapping -> {
                List<HandlerMethod> handlers = List.copyOf(mapping.getHandlerMethods().values());
                rules.check(handlers);
            });
        }
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(name = "io.micrometer.core.instrument.binder.MeterBinder")
    static class OfMicrometer {
        @Bean
        Meters ratelimitdMeters(RatelimitdClient client) {
            return new Meters(client);
        }
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(name = "org.springframework.boot.actuate.health.HealthIndicator")
    @ConditionalOnExpression(HEALTH_ENABLED)
    static class OfBoot3 {
        @Bean
        Boot3Health ratelimitdHealthIndicator(Probe probe) {
            return new Boot3Health(probe);
        }
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(name = "org.springframework.boot.health.contributor.HealthIndicator")
    @ConditionalOnMissingClass("org.springframework.boot.actuate.health.HealthIndicator")
    @ConditionalOnExpression(HEALTH_ENABLED)
    static class OfBoot4 {
        @Bean
        Boot4Health ratelimitdHealthIndicator(Probe probe) {
            return new Boot4Health(probe);
        }
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnWebApplication(type = Type.REACTIVE)
    @ConditionalOnClass(name = "org.springframework.cloud.gateway.filter.ratelimit.AbstractRateLimiter")
    static class OfGateway {
        /** This limiter is the primary one, because the gateway can't choose between it and the one of Redis. */
        @Bean("ratelimitd")
        @Primary
        GatewayRateLimiter ratelimitdGatewayRateLimiter(Limiter limiter, ObjectProvider<ConfigurationService> service) {
            return new GatewayRateLimiter(limiter, service.getIfAvailable()); // a disabled gateway has none
        }

        @Bean
        @ConditionalOnMissingBean
        KeyResolver ratelimitdKeyResolver(RatelimitdProperties properties, Callers callers) {
            Callers.By by = callers.by(properties.by());
            return exchange -> ReactiveLimits.viewOf(exchange).mapNotNull(by::callerOf);
        }
    }
}
