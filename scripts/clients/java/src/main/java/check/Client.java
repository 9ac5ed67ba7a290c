package check;

import com.google.protobuf.ByteString;
import com.google.protobuf.Duration;
import org.apache.dubbo.common.constants.CommonConstants;
import org.apache.dubbo.config.ApplicationConfig;
import org.apache.dubbo.config.ReferenceConfig;
import org.apache.dubbo.config.bootstrap.DubboBootstrap;
import punctual.v1.GetRequest;
import punctual.v1.MessageName;
import punctual.v1.MessageService;
import punctual.v1.NewMessage;
import punctual.v1.SendRequest;

/** The contract called by Dubbo's client for Java, over Triple. */
public final class Client {
    public static void main(String[] arguments) {
        ReferenceConfig<MessageService> reference = new ReferenceConfig<>();
        reference.setInterface(MessageService.class);
        reference.setProxy(CommonConstants.NATIVE_STUB);
        reference.setUrl("tri://" + arguments[0]);
        reference.setTimeout(60_000);
        ApplicationConfig application = new ApplicationConfig("check");
        application.setQosEnable(false);
        DubboBootstrap.getInstance().application(application).reference(reference).start();
        MessageService messages = reference.get();

        ByteString body = ByteString.copyFromUtf8("from Dubbo");
        Duration delay = Duration.newBuilder().setSeconds(3600).build();
        NewMessage later = NewMessage.newBuilder().setBody(body).setDelay(delay).build();
        for (int round = 0; round < 20; round++) {
            String id = messages
                    .send(SendRequest.newBuilder().setTopic("dubbo-java").addMessages(later).build())
                    .getMessages(0)
                    .getId();
            MessageName name = MessageName.newBuilder().setId(id).build();
            if (!messages.get(GetRequest.newBuilder().setName(name).build()).getBody().equals(body)) {
                throw new AssertionError("another body");
            }
        }
        try {
            MessageName name = MessageName.newBuilder().setId("nothing").build();
            messages.get(GetRequest.newBuilder().setName(name).build());
            throw new AssertionError("a missing message was found");
        } catch (RuntimeException refused) {
            if (!String.valueOf(refused.getMessage()).contains("no such message")) {
                throw refused;
            }
        }
        System.out.println("dubbo-java: all is well");
        System.exit(0);
    }
}
