package stub;

import ccm.cloudprovider.v1alpha1.ErrorReason;
import ccm.cloudprovider.v1alpha1.FieldShape;
import ccm.cloudprovider.v1alpha1.Limits;
import ccm.cloudprovider.v1alpha1.Options;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Descriptors.FieldDescriptor.JavaType;
import com.google.protobuf.Message;
import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** Refuses requests that have another shape than the contract gives their fields (options.proto), before anything else happens. */
final class Shape {
    private static final int MOST = 500;
    /** The contract's defaults, which this provider advertises. */
    private static final Limits LIMITS = Limits.newBuilder()
            .setMaxBatchInstances(MOST).setMaxBatchLoadBalancers(MOST).setMaxBatchRoutes(MOST).setMaxBatchVolumes(MOST).build();

    private Shape() {}

    static void check(Message request) {
        check(request, "");
    }

    /** Returns the page size: the requested one, or the maximum if the request names none or more. */
    static int page(int size) {
        return size == 0 ? MOST : Math.min(size, MOST);
    }

    private static void check(Message message, String path) {
        for (FieldDescriptor field : message.getDescriptorForType().getFields()) {
            FieldShape shape = field.getOptions().getExtension(Options.shape);
            String at = path + field.getName();
            if (field.isMapField()) continue;
            if (field.isRepeated()) list(message, field, shape, at);
            else if (field.getJavaType() == JavaType.STRING) text(message, field, shape, at);
            else if (field.getJavaType() == JavaType.MESSAGE) part(message, field, shape, at);
            else if (shape.getNotNegative() && (int) message.getField(field) < 0) throw Refusal.outOfShape(at, "is negative");
        }
    }

    private static void part(Message message, FieldDescriptor field, FieldShape shape, String at) {
        boolean there = message.hasField(field);
        if (shape.getRequired() && !there) throw Refusal.outOfShape(at, "is missing");
        if (there && !shape.getUnchecked()) check((Message) message.getField(field), at + ".");
    }

    private static void text(Message message, FieldDescriptor field, FieldShape shape, String at) {
        String value = (String) message.getField(field);
        boolean required = shape.getRequired() || isSet(message, shape.getRequiredWith());
        if (required && value.isEmpty()) throw Refusal.outOfShape(at, "is missing");
        int most = shape.getMaxBytes();
        if (most > 0 && value.getBytes(StandardCharsets.UTF_8).length > most) throw Refusal.outOfShape(at, "has more than " + most + " bytes");
    }

    private static void list(Message message, FieldDescriptor field, FieldShape shape, String at) {
        List<?> items = (List<?>) message.getField(field);
        if (!items.isEmpty() && isSet(message, shape.getEmptyWith())) throw Refusal.outOfShape(at, "is not empty although " + shape.getEmptyWith() + " is set");
        if (shape.getRequired() && items.isEmpty()) throw Refusal.outOfShape(at, "is empty");
        if (!shape.getLimit().isEmpty()) {
            int most = (int) LIMITS.getField(Limits.getDescriptor().findFieldByName(shape.getLimit()));
            if (items.size() > most) throw Refusal.of(ErrorReason.ERROR_REASON_BATCH_TOO_LARGE, at + " has more than " + most + " items", Map.of("max", "" + most));
        }
        if (field.getJavaType() != JavaType.MESSAGE || shape.getUnchecked()) return;
        for (int i = 0; i < items.size(); i++) check((Message) items.get(i), at + "[" + i + "].");
        for (String way : shape.getUniqueList()) {
            Set<Object> seen = new HashSet<>();
            for (int i = 0; i < items.size(); i++) {
                if (!seen.add(valueAt((Message) items.get(i), way))) throw Refusal.outOfShape(at + "[" + i + "]." + way, "is a duplicate");
            }
        }
    }

    private static boolean isSet(Message message, String neighbour) {
        return !neighbour.isEmpty() && (boolean) message.getField(message.getDescriptorForType().findFieldByName(neighbour));
    }

    private static Object valueAt(Message message, String way) {
        Object at = message;
        for (String name : way.split("\\.")) at = ((Message) at).getField(((Message) at).getDescriptorForType().findFieldByName(name));
        return at;
    }
}
